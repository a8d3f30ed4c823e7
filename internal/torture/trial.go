package torture

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/mattn/go-shellwords"

	"github.com/repolock/repolock/internal/judge"
)

// Trial tries any lock that wraps a command. Its clients contend for the lock in rounds, each
// of which inflicts one fault on a holder.
//
// Exclusive, Shared and Clean are command lines, which are split into words as a shell does.
// No shell runs them. A word "{}" stands for the words of the child's command line; within a
// longer word "{}" stands for the same words with spaces in between. None of the words has a
// character that a shell takes for anything but itself, however it is quoted.
type Trial struct {
	Exclusive string // takes the lock and runs {} under it
	Shared    string // the same in the other mode; "" if the lock has one mode
	Clean     string // runs before each round; "" if nothing is to be done
	Program   string // repolock's path

	Clients int // at least 2
	// Lease is the time after which the lock of a dead holder is free. A lock that never
	// expires has none; it is judged as if it had this one.
	Lease  time.Duration
	Faults []Fault // inflicted in turn
	// Rounds is the number of rounds with each fault. If it is 0, each fault has as many as
	// fit into Duration, and at least one.
	Rounds   int
	Duration time.Duration
	Seed     uint64        // of the clients' modes, holds and pauses
	JudgeFor time.Duration // bounds the time of the verdict

	Log      io.Writer         // receives each event as a line of JSON, if it isn't nil
	Progress func(TrialReport) // is called after each round, if it isn't nil

	least limits // those that don't depend on the lease, if they aren't zero
}

// limits are times that only a lock which stays held reaches, however busy the machine is.
type limits struct{ free, entry time.Duration }

func (t Trial) limits() limits {
	return limits{cmp.Or(t.least.free, 30*time.Second), cmp.Or(t.least.entry, time.Minute)}
}

// entry is how long a client that is alone tries to get in.
func (t Trial) entry() time.Duration { return t.patience() + t.limits().entry }

// patience is how long after its holder's end a lock can stay held: three leases, and long
// enough for the next client to be started on a busy machine.
func (t Trial) patience() time.Duration { return max(3*t.Lease, t.limits().free) }

// NeverFreed is the violation of a lock that stays held after its holder has ended.
const NeverFreed = "never_freed"

// TrialReport is the outcome of a trial.
type TrialReport struct {
	Verdict judge.Verdict
	Faults  []*FaultReport
	// Left are the faults that were not inflicted, with the reasons.
	Left []Omitted
	// Pictures show the first violation of each kind under each fault, as text.
	Pictures []string
}

// FaultReport is what happened in the rounds with one fault. Fields of the JSON are only ever
// added.
type FaultReport struct {
	Fault  Fault `json:"fault"`
	Rounds int   `json:"rounds"`
	// Locks counts those that were taken, and Refused the attempts that failed.
	Locks   int `json:"locks"`
	Refused int `json:"refused"`
	// TwoIn and Blocked count the rounds in which two were in together, or in which the lock
	// wasn't free again in time.
	TwoIn   int `json:"two_in"`
	Blocked int `json:"blocked"`
	// WentOn is the longest time for which a holder's child went on to write after another got
	// in, in seconds. A round ends when it is wentOnFor.
	WentOn float64 `json:"went_on_seconds"`
	// FreeAfter is the longest time from the end of a holder's child until the next client was
	// in, in seconds.
	FreeAfter float64 `json:"free_after_seconds"`
}

// Omitted is a fault that was left out.
type Omitted struct {
	Fault Fault  `json:"fault"`
	Why   string `json:"why"`
}

// Acquisitions returns the number of locks taken.
func (r TrialReport) Acquisitions() (n int) {
	for _, f := range r.Faults {
		n += f.Locks
	}
	return n
}

// Check returns an error if the trial can't be begun.
func (t Trial) Check() error {
	for _, c := range []struct {
		flag, line string
		wraps      bool
	}{{"--with", t.Exclusive, true}, {"--shared-with", t.Shared, true}, {"--clean", t.Clean, false}} {
		if c.line == "" {
			continue
		}
		if _, err := words(c.line); err != nil {
			return fmt.Errorf("%s %q: %w", c.flag, c.line, err)
		}
		switch has := strings.Contains(c.line, placeholder); {
		case c.wraps && !has:
			return fmt.Errorf("%s %q: has no %s: write it where the lock's program has the command that it runs", c.flag, c.line, placeholder)
		case !c.wraps && has:
			return fmt.Errorf("%s %q: runs under no lock, so that it has no %s", c.flag, c.line, placeholder)
		}
	}
	return nil
}

// placeholder stands for the child's command line.
const placeholder = "{}"

// words splits a command line.
func words(line string) ([]string, error) {
	p := shellwords.NewParser()
	w, err := p.Parse(line)
	switch {
	case err != nil:
		return nil, err
	case p.Position >= 0:
		return nil, errors.New("no shell runs it: quote the character, or use sh -c '...'")
	case len(w) == 0:
		return nil, errors.New("it is empty")
	}
	return w, nil
}

// around returns the words of a command line with a child's in their place.
func around(line string, of []string) ([]string, error) {
	split, err := words(line)
	if err != nil {
		return nil, err
	}
	var all []string
	for _, w := range split {
		if w == placeholder {
			all = append(all, of...)
		} else {
			all = append(all, strings.ReplaceAll(w, placeholder, strings.Join(of, " ")))
		}
	}
	return all, nil
}

// Fault is what a trial inflicts on a process that holds the lock, or on the lock itself.
type Fault string

const (
	// Calm inflicts nothing: the clients are started together, over and over.
	Calm Fault = "none"
	// Outlast inflicts nothing: the child needs twice the lease.
	Outlast Fault = "long"
	// KillWrapper kills the process that took the lock, and nothing else of it.
	KillWrapper Fault = "kill-wrapper"
	// KillAll kills the wrapper, its helpers and its child at once, as a crash of the machine
	// does.
	KillAll Fault = "kill-all"
	// StopWrapper, StopChild and StopBoth stop them until the lease is over and another client
	// is in, or until twice the lease has passed. Then they continue.
	StopWrapper Fault = "stop-wrapper"
	StopChild   Fault = "stop-child"
	StopBoth    Fault = "stop-both"
	// StopAll stops their helpers, too, as a pause of the machine does.
	StopAll Fault = "stop-all"
	// Clock lets the wall clocks of all clients but the holder be three leases ahead.
	Clock Fault = "clock"
)

// TrialFaults returns all faults of a trial, in the order in which it inflicts them.
func TrialFaults() []Fault {
	return []Fault{Calm, Outlast, KillWrapper, KillAll, StopWrapper, StopChild, StopBoth, StopAll, Clock}
}

// continues reports whether the fault stops processes, which continue later.
func (f Fault) continues() bool {
	return f == StopWrapper || f == StopChild || f == StopBoth || f == StopAll
}
