//go:build linux

package main

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

// Trial tries any program that takes a lock and runs a command under it. Its clients contend for the
// lock in rounds. Each round inflicts one fault on a holder.
//
// Exclusive, Shared and Clean are command lines. They are split into words as a shell does, but no
// shell runs them. A word "{}" stands for the words of the child's command line. Within a longer word,
// "{}" stands for the same words with spaces between them. The child's words have no character that is
// special in a shell, so it doesn't matter how they are quoted.
type Trial struct {
	Exclusive string // takes the lock and runs {} under it
	Shared    string // the same in the other mode; "" if the lock has one mode
	Clean     string // runs before each round; "" if there is nothing to do
	Program   string // the path of this program, which is the child, too

	Clients int // at least 2
	// Lease is the time after which the lock of a dead holder is free. A lock that never expires is
	// judged as if it had this lease.
	Lease  time.Duration
	Faults []Fault // inflicted in turn
	// Rounds is the number of rounds with each fault. If it is 0, rounds with all faults are repeated
	// until Duration is over.
	Rounds   int
	Duration time.Duration
	Seed     uint64 // of the clients' modes, holds and pauses

	Log      io.Writer         // receives each event as a line of JSON, if it isn't nil
	Progress func(TrialReport) // is called after each round, if it isn't nil

	// Only a lock that stays held reaches these limits, however busy the machine is. Tests set them; 0
	// stands for the default.
	freeLimit  time.Duration // 30 s
	startLimit time.Duration // 1 min
}

// freeIn is how long a lock can stay held after the end of its holder: three leases, and long enough
// for a busy machine to start the next client.
func (t Trial) freeIn() time.Duration { return max(3*t.Lease, cmp.Or(t.freeLimit, 30*time.Second)) }

// startIn is how long a busy machine can take to start or to end a client.
func (t Trial) startIn() time.Duration { return cmp.Or(t.startLimit, time.Minute) }

// enterIn is how long a client without competitors tries to acquire the lock.
func (t Trial) enterIn() time.Duration { return t.freeIn() + t.startIn() }

// NeverFreed names the violation of a lock that stays held after its holder has ended.
const NeverFreed = "never_freed"

// TrialReport is the outcome of a trial.
type TrialReport struct {
	Verdict judge.Verdict
	Faults  []*FaultReport
	// Left are the faults that were not inflicted.
	Left []Omitted
	// Pictures show the first violation of each kind under each fault, as text.
	Pictures []string
}

// FaultReport counts the events of the rounds with one fault. Fields of the JSON are only ever added.
type FaultReport struct {
	Fault  Fault `json:"fault"`
	Rounds int   `json:"rounds"`
	// Locks counts the locks that were acquired, and Refused the attempts that failed.
	Locks   int `json:"locks"`
	Refused int `json:"refused"`
	// TwoIn counts the rounds in which two clients that exclude each other held the lock together, and
	// Blocked the rounds in which the lock stayed held.
	TwoIn   int `json:"two_in"`
	Blocked int `json:"blocked"`
	// WentOn is the longest time in which a holder's child still wrote after another client had acquired
	// the lock, in seconds. It ends the round at wentOnFor.
	WentOn float64 `json:"went_on_seconds"`
	// FreeAfter is the longest time from the end of a holder's child until the next client had the lock,
	// in seconds. It is 0 if the next client had it before we noticed the end.
	FreeAfter float64 `json:"free_after_seconds"`
}

// Omitted is a fault that was not inflicted, and the reason.
type Omitted struct {
	Fault Fault  `json:"fault"`
	Why   string `json:"why"`
}

// Acquisitions returns the number of locks that were acquired.
func (r TrialReport) Acquisitions() (n int) {
	for _, f := range r.Faults {
		n += f.Locks
	}
	return n
}

// Check returns an error if one of the command lines can't be used.
func (t Trial) Check() error {
	for _, c := range []struct {
		flag, line string
		wraps      bool
	}{{"--with", t.Exclusive, true}, {"--shared-with", t.Shared, true}, {"--clean", t.Clean, false}} {
		if c.line == "" && c.flag != "--with" {
			continue
		}
		if _, err := words(c.line); err != nil {
			return fmt.Errorf("%s %q: %w", c.flag, c.line, err)
		}
		switch has := strings.Contains(c.line, placeholder); {
		case c.wraps && !has:
			return fmt.Errorf("%s %q: has no %s: write it in place of the command that runs under the lock", c.flag, c.line, placeholder)
		case !c.wraps && has:
			return fmt.Errorf("%s %q: runs under no lock: write it without %s", c.flag, c.line, placeholder)
		}
	}
	return nil
}

// placeholder stands for the child's command line.
const placeholder = "{}"

// words splits a command line into words.
func words(line string) ([]string, error) {
	p := shellwords.NewParser()
	w, err := p.Parse(line)
	switch {
	case err != nil:
		return nil, err
	case p.Position >= 0:
		return nil, errors.New("no shell runs it: quote its special characters, or use sh -c '...'")
	case len(w) == 0:
		return nil, errors.New("it is empty")
	}
	return w, nil
}

// around returns the words of a command line, with the child's words in place of each placeholder.
func around(line string, child []string) ([]string, error) {
	split, err := words(line)
	if err != nil {
		return nil, err
	}
	var all []string
	for _, w := range split {
		if w == placeholder {
			all = append(all, child...)
		} else {
			all = append(all, strings.ReplaceAll(w, placeholder, strings.Join(child, " ")))
		}
	}
	return all, nil
}

// Fault is a kind of fault that a round of a Trial inflicts on a holder. The wrapper is the process that took the
// lock.
type Fault string

const (
	// Calm inflicts nothing: all clients are started together, again and again.
	Calm Fault = "none"
	// Outlast inflicts nothing: the child runs for twice the lease.
	Outlast Fault = "long"
	// KillWrapper kills the wrapper alone.
	KillWrapper Fault = "kill-wrapper"
	// KillAll kills the wrapper, its helpers and its child at once, as a crash of the machine does.
	KillAll Fault = "kill-all"
	// StopWrapper, StopChild and StopBoth stop the processes until another client has the lock, or until
	// twice the lease has passed. Then they are continued.
	StopWrapper Fault = "stop-wrapper"
	StopChild   Fault = "stop-child"
	StopBoth    Fault = "stop-both"
	// StopAll stops the wrapper's helpers too, as a pause of the machine does.
	StopAll Fault = "stop-all"
	// Clock sets the wall clocks of all clients but the holder three leases ahead.
	Clock Fault = "clock"
)

// TrialFaults returns all faults, in the order in which a trial inflicts them by default.
func TrialFaults() []Fault {
	return []Fault{Calm, Outlast, KillWrapper, KillAll, StopWrapper, StopChild, StopBoth, StopAll, Clock}
}

// continues reports whether the fault stops processes and continues them later.
func (f Fault) continues() bool {
	return f == StopWrapper || f == StopChild || f == StopBoth || f == StopAll
}
