//go:build linux

package main

import (
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/repolock/repolock/internal/clock"
	"github.com/repolock/repolock/internal/fault"
	"github.com/repolock/repolock/internal/judge"
)

// Witness is the child of a trial. Under the lock it only appends entries to the log that all children
// share. Each entry proves that the lock was held at that time.
type Witness struct {
	ID   string // unique in the trial
	Log  string // the path of the log
	Hold time.Duration
}

// beat is the interval of a witness's entries.
const beat = 20 * time.Millisecond

// Do appends an entry at the begin, at each beat and at the end. The last beat comes after the hold is
// over, so that a witness that was stopped and continued logs once more.
func (w Witness) Do() error {
	f, err := os.OpenFile(w.Log, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		return fmt.Errorf("%w: %w", fault.Unjudged, err)
	}
	defer f.Close()
	note := func(e judge.Event) error {
		e.At, e.ID = clock.System{}.Elapsed(), w.ID
		return judge.Write(f, e)
	}
	end := clock.System{}.Elapsed() + w.Hold
	err = note(judge.Event{Kind: judge.In, PID: os.Getpid(), Text: namespaces()})
	for over := false; err == nil && !over; {
		<-clock.System{}.After(beat)
		over = clock.System{}.Elapsed() >= end
		err = note(judge.Event{Kind: judge.Beat})
	}
	if err != nil {
		return err
	}
	return note(judge.Event{Kind: judge.Out})
}

// namespaces names the pid and the time namespace of this process.
func namespaces() string {
	pid, _ := os.Readlink("/proc/self/ns/pid")
	clocks, _ := os.Readlink("/proc/self/ns/time") // since Linux 5.6
	return strings.TrimSpace(pid + " " + clocks)
}
