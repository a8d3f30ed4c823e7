package show

import (
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/repolock/repolock/cmd/internal/also"
	"github.com/repolock/repolock/cmd/internal/session"
	"github.com/repolock/repolock/internal/clock"
	"github.com/repolock/repolock/internal/text"
	"github.com/repolock/repolock/replock"
)

// waitDisplay shows a wait that lasts longer than a second. A terminal shows a live line, or whole lines if it can't
// erase one. A pipe or a file gets a line when the holders change, when work on many stale locks begins, or when no
// answer has come within Reporter.Patience.
type waitDisplay struct {
	mu    sync.Mutex
	wait  wait
	stop  chan struct{} // ends the goroutine that shows the wait each second; nil while there is none
	piped bool          // stderr was no terminal when the goroutine was started
	drawn bool          // the live line shows the wait
	said  []string      // the states of the wait that were printed in whole lines
}

// wait is work that we wait for, and its last event.
type wait struct {
	doing       string        // the work of BeginWait
	about       string        // what the work is about, or ""
	began       time.Duration // when BeginWait was called
	last        replock.Event // its kind is "" if there was none
	lastAt      time.Duration // when last came
	interrupted bool          // a signal has ended the wait for the lock: its later events aren't shown
}

func (r *Reporter) now() time.Duration {
	if r.Elapsed == nil {
		return clock.System{}.Elapsed()
	}
	return r.Elapsed()
}

// BeginWait begins a wait that EndWait ends. doing is the work, and about is its object, or "".
func (r *Reporter) BeginWait(doing, about string) {
	r.waits.mu.Lock()
	defer r.waits.mu.Unlock()
	r.begin(doing, about)
}

func (r *Reporter) begin(doing, about string) {
	r.waits.wait = wait{doing: doing, about: about, began: r.now()}
	switch {
	case r.Quiet || r.JSON:
	case r.waits.stop == nil:
		r.waits.piped = r.on() == NoTerminal
		r.start(false)
	case r.waits.drawn || len(r.waits.said) > 0:
		r.show()
	}
}

// Step begins a step of long work, and shows it at once.
func (r *Reporter) Step(doing, about string) {
	r.waits.mu.Lock()
	defer r.waits.mu.Unlock()
	r.begin(doing, about)
	if !r.waits.drawn && r.ShowsOn(ErasingTerminal) {
		r.show()
	}
}

// Interrupted shows that a signal has ended the wait for a lock. Later events of the lock aren't shown.
func (r *Reporter) Interrupted() {
	r.waits.mu.Lock()
	defer r.waits.mu.Unlock()
	if r.waits.stop != nil {
		r.begin("interrupted", "deleting the lock that might have been written")
		r.waits.wait.interrupted = true
	}
}

// Event shows an event of a lock. It blocks while the terminal is stopped (Ctrl-S).
func (r *Reporter) Event(e replock.Event) {
	switch e.Kind {
	case replock.EventWaiting, replock.EventReading, replock.EventReaping, replock.EventWatching:
		r.waits.mu.Lock()
		defer r.waits.mu.Unlock()
		if !r.waits.wait.interrupted {
			r.waitEvent(e)
		}
		return
	case replock.EventRetrying: // also while the command runs, which then uses the terminal
		r.waits.mu.Lock()
		if r.waits.stop != nil && !r.waits.wait.interrupted {
			r.waits.wait.last, r.waits.wait.lastAt = e, r.now()
		}
		r.waits.mu.Unlock()
	}
	r.printEvent(e)
}

// waitEvent shows an event of a wait, or of work on many locks.
func (r *Reporter) waitEvent(e replock.Event) {
	previous := r.waits.wait.last
	r.waits.wait.last, r.waits.wait.lastAt = e, r.now()
	switch {
	case r.waits.stop != nil && !r.waits.piped && !r.ShowsOn(DumbTerminal): // the goroutine shows it
	case r.ShowsOn(ErasingTerminal):
		r.start(true)
	case e.Kind == replock.EventWatching:
		r.printEvent(e)
	case e.Kind == replock.EventWaiting && !slices.Equal(held(e.Holders), held(previous.Holders)):
		what := fmt.Sprintf("the %s lock", e.Mode)
		if also.Known(e.Key) {
			what = text.Escape(e.Key)
		}
		r.Say("waiting for %s, %s %s", what, by(e.Holders), holders(e.Holders, 0, 0, r.status()))
	case e.Kind != replock.EventWaiting && e.Kind != previous.Kind:
		r.Say("%s", work(e))
	}
}

// status returns the command that shows all holders.
func (r *Reporter) status() string { return r.Flags.Located("{repolock status}") }

// by returns the words before the holders in a message about a wait.
func by(holders []replock.Info) string {
	if onlyWaiters(holders) {
		return "reserved for"
	}
	return "held by"
}

// work describes an event of work on many locks.
func work(e replock.Event) string {
	what := "reading many locks, which might be stale"
	if e.Kind == replock.EventReaping {
		what = fmt.Sprintf("removing %d stale locks", e.Total)
	}
	if e.Done > 0 {
		what += fmt.Sprintf(": %d done", e.Done)
	}
	return what
}

// held identifies the holders, sorted.
func held(holders []replock.Info) (names []string) {
	for _, h := range holders {
		names = append(names, h.ID+h.Key()+h.Holder)
	}
	slices.Sort(names)
	return names
}

// start starts a goroutine that shows the wait each second, beginning now or in a second.
func (r *Reporter) start(now bool) {
	stop := make(chan struct{})
	r.waits.stop = stop
	go func() {
		ticker := time.NewTicker(time.Second)
		defer ticker.Stop()
		for ; ; now = true {
			if now {
				r.waits.mu.Lock()
				if r.waits.stop == stop {
					r.show()
				}
				r.waits.mu.Unlock()
			}
			select {
			case <-stop:
				return
			case <-ticker.C:
			}
		}
	}()
}

// show draws the live line, or prints the state of the wait in a whole line if it wasn't printed before.
func (r *Reporter) show() {
	w, now := r.waits.wait, r.now()
	if r.waits.piped && now-w.began < r.Patience {
		return
	}
	if !r.waits.piped && !r.ShowsOn(DumbTerminal) {
		r.waits.drawn = r.Live(w.line(now, r.status()))
		return
	}
	state := w.named("")
	line := state
	switch {
	case w.isRetrying(now):
		state, line = session.Words(w.last.Err, ""), w.line(now, r.status())
		if r.Verbose { // printEvent has printed the event
			return
		}
	case w.last.Kind != "" && w.last.Kind != replock.EventRetrying: // waitEvent has printed it
		return
	}
	if !slices.Contains(r.waits.said, state) {
		r.waits.said = append(r.waits.said, state)
		r.Say("%s", line)
	}
}

// isRetrying reports whether the last event is a failed request that can still be repeated.
func (w wait) isRetrying(now time.Duration) bool {
	return w.last.Kind == replock.EventRetrying && now-w.lastAt < w.last.Left
}

// line returns the live line. Its changing part comes first, so that a terminal of 60 columns shows it. status is the
// command that shows all holders.
func (w wait) line(now time.Duration, status string) string {
	e, since := w.last, now-w.lastAt
	switch {
	case e.Kind == replock.EventWaiting:
		return fmt.Sprintf("waiting %s: %s %s", text.Duration(e.Waited+since), by(e.Holders), holders(e.Holders, 0, since, status))
	case e.Kind == replock.EventWatching:
		return fmt.Sprintf("watching %s whether it is stale: %s", text.Duration(e.Waited+since), holders(e.Holders, 0, since, status))
	case e.Kind == replock.EventReading || e.Kind == replock.EventReaping:
		return work(e)
	case w.isRetrying(now):
		return fmt.Sprintf("retrying for %s at most: %s", atMost(e.Left-since), session.Words(e.Err, ""))
	default:
		if lasts := now - w.began; lasts >= time.Second {
			return w.named(", " + text.Duration(lasts))
		}
		return w.named("")
	}
}

// named returns the work, how long it has lasted or "", and its object.
func (w wait) named(lasted string) string {
	if w.about == "" {
		return w.doing + lasted
	}
	return w.doing + lasted + ": " + w.about
}

// atMost formats an upper bound, rounded up to a second.
func atMost(d time.Duration) string {
	return text.Duration((d + time.Second - 1).Truncate(time.Second))
}

// EndWait ends the wait, and erases the live line.
func (r *Reporter) EndWait() {
	r.waits.mu.Lock()
	defer r.waits.mu.Unlock()
	if r.waits.stop != nil {
		close(r.waits.stop)
		r.waits.stop = nil
	}
	r.waits.wait, r.waits.drawn, r.waits.said = wait{}, false, nil
	r.Live("")
}
