package torture

import (
	"math/rand/v2"
	"slices"
	"time"

	"github.com/repolock/repolock/internal/judge"
	"github.com/repolock/repolock/internal/refresh"
)

// Chances are the probabilities of a turn. Zero is a good default; a negative one means
// never.
type Chances struct {
	// Exclusive is the share of exclusive locks among those taken. Clients try one more
	// often, because shared locks keep it out.
	Exclusive float64 // 0.15
	Long      float64 // 0.015: it holds the lock for one to four refreshes
	// Faults for each lock that is taken; a turn has at most one. A refused client can be
	// killed too, and leaves objects that keep others out for a ttl. Systems without such
	// signals neither stop nor terminate.
	Kill float64 // 0.02
	Stop float64 // 0.02: past the deadline, and continued
	Term float64 // 0.03
}

func (c Chances) filled() Chances {
	for chance, value := range map[*float64]float64{&c.Exclusive: 0.15, &c.Long: 0.015, &c.Kill: 0.02, &c.Stop: 0.02, &c.Term: 0.03} {
		if *chance == 0 {
			*chance = value
		}
		*chance = max(*chance, 0)
	}
	return c
}

// left returns the chances without the faults that happened often enough.
func (c Chances) left(n Counts) Chances {
	for chance, inflicted := range map[*float64]int{&c.Kill: n.Killed, &c.Stop: n.Stopped, &c.Term: n.Terminated} {
		if float64(inflicted) > *chance*float64(n.Acquisitions()) {
			*chance = 0
		}
	}
	return c
}

// harm is a fault of a process that holds a lock or is about to take it.
type harm string

const (
	none harm = ""
	kill harm = "kill"
	stop harm = "stop"
	term harm = "term"
)

// plan is one turn of one client.
type plan struct {
	Work
	fault   harm
	faultAt time.Duration // after its start, perhaps before it is in
	stopFor time.Duration
	pause   time.Duration // after it
}

const (
	shortHold  = 300 * time.Millisecond
	longestGap = 600 * time.Millisecond
	// entry is about the time that it takes to get in.
	entry = 100 * time.Millisecond
)

// eager is the probability of an exclusive lock while too few have been taken.
const eager = 0.6

// newPlan plans a turn. behind: too few of the locks that were taken are exclusive.
func newPlan(r *rand.Rand, id, data string, ttl time.Duration, c Chances, behind bool) plan {
	p := plan{
		Work:    Work{ID: id, Mode: judge.Shared, Data: data, Hold: upTo(r, shortHold)},
		stopFor: ttl + ttl/8 + upTo(r, ttl/2), // another is let in a little after the ttl
		pause:   upTo(r, longestGap),
	}
	exclusive := c.Exclusive
	if behind && exclusive > 0 {
		exclusive = max(exclusive, eager)
	}
	if r.Float64() < exclusive {
		p.Mode = judge.Exclusive
	}
	switch x := r.Float64(); {
	case x < c.Kill:
		p.fault = kill
	case x < c.Kill+c.Stop:
		p.fault = stop
	case x < c.Kill+c.Stop+c.Term:
		p.fault = term
	}
	if r.Float64() < c.Long {
		p.Hold = ttl/2 + upTo(r, ttl*3/2)
	}
	p.faultAt = upTo(r, min(p.Hold, ttl)+entry)
	if x := r.IntN(3); p.fault == stop && x > 0 {
		if x > 1 {
			// No other client gets in yet: the lock is lost, and can be resumed.
			deadline := refresh.ForTTL(ttl).Deadline
			p.stopFor = deadline + upTo(r, ttl-deadline)
		}
		// The child must not be done before the process is continued.
		p.Hold = p.faultAt + p.stopFor + upTo(r, ttl/2)
	}
	return p
}

func upTo(r *rand.Rand, d time.Duration) time.Duration { return time.Duration(r.Int64N(int64(d))) }

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
