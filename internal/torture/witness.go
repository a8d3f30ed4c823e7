package torture

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/repolock/repolock/internal/clock"
	"github.com/repolock/repolock/internal/judge"
)

// Witness is the child of a trial: all that it does under the lock is to append to the log
// that all children share. Each entry says when it was in.
type Witness struct {
	ID   string // unique in the trial
	Log  string // the path of the log
	Hold time.Duration
}

// WitnessSubcommand is the command of repolock that is a Witness. It takes the ID, the log and
// the hold as arguments.
const WitnessSubcommand = "torture-witness"

// beat is the interval of a witness's entries.
const beat = 20 * time.Millisecond

// Do appends an entry at its begin, at each beat and at its end. The last beat comes after the
// hold is over, so that a witness that was stopped meanwhile writes once more.
func (w Witness) Do() error {
	f, err := os.OpenFile(w.Log, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrUnjudged, err)
	}
	defer f.Close()
	log := json.NewEncoder(f) // writes each entry at once
	end := clock.System{}.Elapsed() + w.Hold
	note := func(e judge.Event) error {
		e.At, e.ID = clock.System{}.Elapsed(), w.ID
		if err := log.Encode(e); err != nil {
			return fmt.Errorf("%w: the log can't be written: %w", ErrUnjudged, err)
		}
		return nil
	}
	err = note(judge.Event{Kind: judge.In, PID: os.Getpid(), Text: namespaces()})
	for err == nil {
		<-clock.System{}.After(beat)
		over := clock.System{}.Elapsed() >= end
		if err = note(judge.Event{Kind: judge.Beat}); over {
			break
		}
	}
	if err != nil {
		return err
	}
	return note(judge.Event{Kind: judge.Out})
}

// namespaces names those of this process on which its number and its clock depend.
func namespaces() string {
	pid, _ := os.Readlink("/proc/self/ns/pid")
	clocks, _ := os.Readlink("/proc/self/ns/time") // Linux 5.6 has it
	return strings.TrimSpace(pid + " " + clocks)
}
