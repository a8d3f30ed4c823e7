package torture

import (
	"slices"
	"time"

	"github.com/repolock/repolock/internal/judge"
)

// Repolock makes command lines of repolock that take a lock and do work under it.
type Repolock struct {
	Program string // repolock's path
	// Locks is the repository URL for the lock, and Data the one for the work: the same
	// repository, perhaps through another address.
	Locks, Data string
	Name        string // of the lock
	TTL         time.Duration
	Flags       []string // more flags of "repolock run"
	NoLock      bool     // take no lock, to test that the judge finds it
}

// Subcommand is the command of repolock that does the work. It takes --id, --mode,
// --data and --hold.
const Subcommand = "torture-child"

// resumeFor bounds the time for which a client tries to resume a lost lock.
const resumeFor = 15 * time.Second

// Command returns the command line that does some work under a lock.
func (r Repolock) Command(w Work) []string {
	work := []string{
		r.Program, "--repo", r.Data, Subcommand,
		"--id", w.ID, "--mode", string(w.Mode), "--data", w.Data, "--hold", w.Hold.String(),
	}
	if r.NoLock {
		return append([]string{r.Program, "run", "--no-lock", "--"}, work...)
	}
	operation := "backup"
	if w.Mode == judge.Exclusive {
		operation = "prune"
	}
	lock := []string{
		r.Program, "--repo", r.Locks, "--name", r.Name, "run", "--" + string(w.Mode), "--operation", operation,
		"--ttl", r.TTL.String(), "--resume-for", resumeFor.String(),
	}
	return slices.Concat(lock, r.Flags, []string{"--"}, work)
}

// Exit codes of repolock, and a line on its stderr.
const (
	panicked = 2 // of any Go program
	codeHeld = 75
	codeLost = 79
	// CodeUnjudged is the exit code of a child that can't write its log.
	CodeUnjudged = 70
	saysResumed  = "the lock was resumed"
)
