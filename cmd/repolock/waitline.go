package main

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/repolock/repolock/cmd/internal/also"
	"github.com/repolock/repolock/cmd/internal/session"
	"github.com/repolock/repolock/internal/clock"
	"github.com/repolock/repolock/internal/text"
	"github.com/repolock/repolock/replock"
)

// waiting is what a reporter shows while repolock waits, from the first second on: on a terminal a live line,
// or whole lines if the terminal can't erase one. Elsewhere it is a line when the holders change, or when work on
// many stale locks begins.
type waiting struct {
	mu          sync.Mutex
	what        string        // the text of BeginWait
	began       time.Duration // when BeginWait was called
	last        replock.Event // since BeginWait; its kind is "" if there was none
	lastAt      time.Duration // when last came
	interrupted bool          // by a signal since BeginWait
	drawn       bool          // the live line is shown
	said        []string      // the states that were shown in whole lines
	stop        chan struct{} // ends the goroutine that shows the wait; nil while there is none
}

func (r *reporter) now() time.Duration {
	if r.elapsed == nil {
		return clock.System{}.Elapsed()
	}
	return r.elapsed()
}

// BeginWait begins a wait that EndWait ends. The seconds are shown before ": " in what, or at its
// end.
func (r *reporter) BeginWait(what string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.begin(what)
}

func (r *reporter) begin(what string) {
	r.what, r.began, r.last, r.interrupted = what, r.now(), replock.Event{}, false
	switch {
	case r.stop == nil:
		if r.showsOn(erasingTerminal) || r.showsOn(dumbTerminal) {
			r.start(false)
		}
	case r.drawn || len(r.said) > 0:
		r.show()
	}
}

// step begins a step of long work, and shows it at once.
func (r *reporter) step(what string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.begin(what)
	if !r.drawn && r.showsOn(erasingTerminal) {
		r.show()
	}
}

// Interrupted shows that a signal has ended the wait for a lock. Later events of the lock aren't shown.
func (r *reporter) Interrupted() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.stop != nil {
		r.begin("interrupted: deleting the lock that might have been written")
		r.interrupted = true
	}
}

// Event shows an event of a lock. It blocks while the terminal is stopped (Ctrl-S).
func (r *reporter) Event(e replock.Event) {
	switch e.Kind {
	case replock.EventWaiting, replock.EventReading, replock.EventReaping, replock.EventWatching:
		r.mu.Lock()
		defer r.mu.Unlock()
		if !r.interrupted {
			r.waitEvent(e)
		}
		return
	case replock.EventRetrying: // also while the command runs, which then uses the terminal
		r.mu.Lock()
		if r.stop != nil && !r.interrupted {
			r.last, r.lastAt = e, r.now()
		}
		r.mu.Unlock()
	}
	r.printEvent(e)
}

// retrying shows that a request failed, and is repeated for the time that is left.
func (r *reporter) retrying(err error, left time.Duration) {
	r.Event(replock.Event{Kind: replock.EventRetrying, Err: err, Left: left})
}

// waitEvent shows an event of a wait, or of work on many locks.
func (r *reporter) waitEvent(e replock.Event) {
	was := r.last
	r.last, r.lastAt = e, r.now()
	switch {
	case r.stop != nil && !r.showsOn(dumbTerminal):
	case r.showsOn(erasingTerminal):
		r.start(true)
	case e.Kind == replock.EventWatching:
		r.printEvent(e)
	case e.Kind == replock.EventWaiting && !slices.Equal(held(e.Holders), held(was.Holders)):
		what := fmt.Sprintf("the %s lock", e.Mode)
		if also.Known(e.Key) {
			what = text.Escape(e.Key)
		}
		by := "held by"
		if onlyWaiters(e.Holders) {
			by = "reserved for"
		}
		r.Say("waiting for %s, %s %s", what, by, holders(e.Holders, 0, 0))
	case e.Kind != replock.EventWaiting && e.Kind != was.Kind:
		r.Say("%s", work(e))
	}
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

// held identifies each holder, in a sorted order.
func held(holders []replock.Info) (names []string) {
	for _, h := range holders {
		names = append(names, h.ID+h.Key()+h.Holder)
	}
	slices.Sort(names)
	return names
}

// start starts a goroutine that shows the wait each second, beginning now or in a second.
func (r *reporter) start(now bool) {
	stop := make(chan struct{})
	r.stop = stop
	go func() {
		ticker := time.NewTicker(time.Second)
		defer ticker.Stop()
		for ; ; now = true {
			if now {
				r.mu.Lock()
				if r.stop == stop {
					r.show()
				}
				r.mu.Unlock()
			}
			select {
			case <-stop:
				return
			case <-ticker.C:
			}
		}
	}()
}

// show draws the live line, or prints the state in a whole line if it wasn't printed before.
func (r *reporter) show() {
	now := r.now()
	if !r.showsOn(dumbTerminal) {
		r.drawn = r.live(r.liveLine(now))
		return
	}
	state, line := r.what, r.what
	switch {
	case r.isRetrying(now - r.lastAt):
		state, line = session.Words(r.last.Err, ""), r.liveLine(now)
		if r.Verb { // printEvent has printed the event
			return
		}
	case r.last.Kind != "" && r.last.Kind != replock.EventRetrying: // waitEvent has printed it
		return
	}
	if !slices.Contains(r.said, state) {
		r.said = append(r.said, state)
		r.Say("%s", line)
	}
}

// isRetrying reports whether a request can still be under way that failed this long ago.
func (r *reporter) isRetrying(since time.Duration) bool {
	return r.last.Kind == replock.EventRetrying && since < r.last.Left
}

// liveLine returns the live line. Its changing part comes first, so that a terminal of 60 columns shows it.
func (r *reporter) liveLine(now time.Duration) string {
	e, since := r.last, now-r.lastAt
	switch {
	case e.Kind == replock.EventWaiting:
		return fmt.Sprintf("waiting %s for %s", text.Duration(e.Waited+since), holders(e.Holders, 0, since))
	case e.Kind == replock.EventWatching:
		return fmt.Sprintf("watching %s whether it is stale: %s", text.Duration(e.Waited+since), holders(e.Holders, 0, since))
	case e.Kind == replock.EventReading || e.Kind == replock.EventReaping:
		return work(e)
	case r.isRetrying(since):
		return fmt.Sprintf("retrying for %s at most: %s", atMost(e.Left-since), session.Words(e.Err, ""))
	default:
		return lasting(r.what, now-r.began)
	}
}

// lasting adds a duration to the description of some work, before ": " or at the end.
func lasting(what string, d time.Duration) string {
	if d < time.Second {
		return what
	}
	what, of, found := strings.Cut(what, ": ")
	if what += ", " + text.Duration(d); found {
		what += ": " + of
	}
	return what
}

// atMost formats an upper bound, rounded up to a second.
func atMost(d time.Duration) string {
	return text.Duration((d + time.Second - 1).Truncate(time.Second))
}

// EndWait ends the wait, and erases the live line.
func (r *reporter) EndWait() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.stop != nil {
		close(r.stop)
		r.stop = nil
	}
	r.what, r.last, r.interrupted, r.drawn, r.said = "", replock.Event{}, false, false, nil
	r.live("")
}
