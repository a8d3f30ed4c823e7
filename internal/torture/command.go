package torture

import (
	"slices"
	"time"

	"github.com/repolock/repolock/internal/history"
)

// Repolock says how repolock is called, to take a lock and to do the work under it.
type Repolock struct {
	// Program is repolock's path.
	Program string
	// Locks is the repository that the lock is taken in, and Data the one that the
	// work is done in: the same, but perhaps by another way.
	Locks, Data string
	// Name of the lock.
	Name string
	TTL  time.Duration
	// Flags of "repolock run" besides.
	Flags []string
	// NoLock takes none, to see that this is found out.
	NoLock bool
}

// Subcommand is the command of repolock that does the work. It takes --id, --mode,
// --data and --hold.
const Subcommand = "torture-child"

// resumeFor is how long a lost lock may keep a client busy: there is more to be seen
// in what others do meanwhile.
const resumeFor = 15 * time.Second

// Command is the command line that does some work under a lock.
func (r Repolock) Command(w Work) []string {
	work := []string{
		r.Program, "--repo", r.Data, Subcommand,
		"--id", w.ID, "--mode", string(w.Mode), "--data", w.Data, "--hold", w.Hold.String(),
	}
	if r.NoLock {
		return append([]string{r.Program, "run", "--no-lock", "--"}, work...)
	}
	operation := "backup"
	if w.Mode == history.Exclusive {
		operation = "prune"
	}
	lock := []string{
		r.Program, "--repo", r.Locks, "--name", r.Name, "run", "--" + string(w.Mode), "--operation", operation,
		"--ttl", r.TTL.String(), "--resume-for", resumeFor.String(),
	}
	return slices.Concat(lock, r.Flags, []string{"--"}, work)
}

// What repolock says of itself: exit codes, and a line on stderr.
const (
	codeHeld = 75
	codeLost = 79
	// CodeUnjudged is what a child exits with that can't write its log.
	CodeUnjudged = 70
	saysResumed  = "the lock was resumed"
)
