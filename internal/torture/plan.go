package torture

import (
	"math/rand/v2"
	"slices"
	"time"

	"github.com/repolock/repolock/internal/judge"
	"github.com/repolock/repolock/internal/refresh"
)

// Chances are the probabilities of a client's next turn.
type Chances struct {
	// Exclusive is the share of exclusive locks among the acquired locks. Clients ask for an exclusive lock more
	// often, because shared locks block it.
	Exclusive float64
	// Wait is the share of attempts that wait for the lock. Without them a crowd of shared holders, at least one of whom
	// always has the lock, would keep out all exclusive clients.
	Wait float64
	// Long is the chance of a lock that is held for one to four refreshes.
	Long float64
	// Kill, Stop and Term are the expected numbers of faults for each acquired lock. A turn has at most one fault. A
	// fault can also hit a client that doesn't hold the lock. If such a client is killed, its objects block other
	// clients for a ttl. Stop stops a client until its deadline is over, and then continues it. Windows has only Kill.
	Kill, Stop, Term float64
}

// UsualChances make locks and faults of each kind happen in a run of a few minutes.
var UsualChances = Chances{Exclusive: 0.15, Wait: 0.3, Long: 0.015, Kill: 0.02, Stop: 0.02, Term: 0.03}

// left returns the chances of the next turn. If more faults of a kind were inflicted than expected, that kind has no
// chance.
func (c Chances) left(n Counts) Chances {
	for chance, inflicted := range map[*float64]int{&c.Kill: n.Killed, &c.Stop: n.Stopped, &c.Term: n.Terminated} {
		if float64(inflicted) > *chance*float64(n.Acquisitions()) {
			*chance = 0
		}
	}
	return c
}

// The faults of a plan, as the log names them.
const (
	none = ""
	kill = "kill"
	stop = "stop"
	term = "term"
)

// plan is one turn of one client.
type plan struct {
	Work
	fault   string
	faultAt time.Duration // since the start of the client, which might not hold the lock yet
	inChild bool          // faultAt counts from the start of the child
	stopFor time.Duration
	pause   time.Duration // before the next turn
}

const (
	shortHold  = 300 * time.Millisecond
	longestGap = 600 * time.Millisecond
	// entry is roughly the time that a client needs from its start to its lock.
	entry = 100 * time.Millisecond
	// eager is the probability of an exclusive lock while too few have been acquired.
	eager = 0.6
)

// newPlan plans a turn. behind is set if too few of the acquired locks are exclusive.
func newPlan(r *rand.Rand, id, data string, ttl time.Duration, c Chances, behind bool) plan {
	p := plan{
		Work:    Work{ID: id, Mode: judge.Shared, Data: data, Hold: upTo(r, shortHold)},
		stopFor: ttl + ttl/8 + upTo(r, ttl/2), // another client can acquire the lock a little after the ttl
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
	if r.Float64() < c.Wait {
		p.Wait = 2*ttl + upTo(r, ttl) // longer than a dead holder's objects block the lock
		p.inChild = r.IntN(2) == 0
	}
	if r.Float64() < c.Long {
		p.Hold = ttl/2 + upTo(r, ttl*3/2)
	}
	p.faultAt = upTo(r, min(p.Hold, ttl)+entry)
	if x := r.IntN(3); p.fault == stop && x > 0 {
		if x > 1 {
			// The client continues before another one can acquire the lock. So the lock is lost, and can be resumed.
			deadline := refresh.ForTTL(ttl).Deadline
			p.stopFor = deadline + upTo(r, ttl-deadline)
		}
		// The child must still be at work when the process is continued.
		p.Hold = p.faultAt + p.stopFor + upTo(r, ttl/2)
	}
	return p
}

func upTo(r *rand.Rand, d time.Duration) time.Duration { return time.Duration(r.Int64N(int64(d))) }

// Repolock makes command lines of repolock that acquire a lock and do some work under it.
type Repolock struct {
	Program string // repolock's path
	// Locks is the repository's URL for the lock, and Data its URL for the work. Both name the same repository,
	// perhaps at different addresses.
	Locks, Data string
	Name        string        // name of the lock
	TTL         time.Duration // of the lock
	Flags       []string      // more flags of "repolock run"
	NoLock      bool          // acquire no lock, so that violations must be found
}

// resumeFor is how long a client tries to resume a lost lock.
const resumeFor = 15 * time.Second

// Command returns the command line that does some work under a lock.
func (r Repolock) Command(w Work) []string {
	work := []string{
		r.Program, "--repo", r.Data, "torture-child",
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
	if w.Wait > 0 {
		lock = append(lock, "--wait", w.Wait.String())
	}
	return slices.Concat(lock, r.Flags, []string{"--"}, work)
}

const (
	// panicked is the exit code of a Go program that panics.
	panicked = 2
	// saysResumed is part of the line that repolock writes to stderr when it has resumed a lock.
	saysResumed = "the lock was resumed"
)
