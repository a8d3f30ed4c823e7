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

// console is a reporter that shows what repolock waits for, so that no second passes without a word:
// on a terminal in a live line, or in whole lines if it can't erase one. Elsewhere it shows a line
// when the holders change, or when work on many stale locks begins.
type console struct {
	*reporter
	elapsed func() time.Duration // the clock

	mu          sync.Mutex
	what        string        // that BeginWait named
	began       time.Duration // when
	last        replock.Event // "" is none since then
	lastAt      time.Duration // when it came
	interrupted bool          // since then
	drawn       bool          // the live line is shown
	said        []string      // in whole lines
	stop        chan struct{} // ends the showing; nil while there is none
}

func newConsole(r *reporter) *console { return &console{reporter: r, elapsed: clock.System{}.Elapsed} }

// looking returns a console that gets the events of locks that are only looked at.
func (r *reporter) looking(g *global) *console {
	w := newConsole(r)
	g.observe = w.Event
	return w
}

// BeginWait begins a wait that EndWait ends. The seconds are shown before ": " in what, or at its
// end.
func (w *console) BeginWait(what string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.begin(what)
}

func (w *console) begin(what string) {
	w.what, w.began, w.last, w.interrupted = what, w.elapsed(), replock.Event{}, false
	switch {
	case w.stop == nil:
		if w.animated() || w.inLines() {
			w.start(false)
		}
	case w.drawn || len(w.said) > 0:
		w.show()
	}
}

// step begins a step of a long work, and shows it at once.
func (w *console) step(what string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.begin(what)
	if !w.drawn && w.animated() {
		w.show()
	}
}

// Interrupted shows that a signal has ended the wait for a lock. The events of the lock are old
// news then.
func (w *console) Interrupted() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.stop != nil {
		w.begin("interrupted: deleting the lock that might have been written")
		w.interrupted = true
	}
}

// Event shows an event of the lock. It can block, on a terminal that was stopped.
func (w *console) Event(e replock.Event) {
	switch e.Kind {
	case replock.EventWaiting, replock.EventReading, replock.EventReaping, replock.EventWatching:
		w.mu.Lock()
		defer w.mu.Unlock()
		if !w.interrupted {
			w.event(e)
		}
		return
	case replock.EventRetrying: // also of a lock that is held, while the terminal is the command's
		w.mu.Lock()
		if w.stop != nil && !w.interrupted {
			w.last, w.lastAt = e, w.elapsed()
		}
		w.mu.Unlock()
	}
	w.reporter.Event(e)
}

// retrying shows that a request has failed, and is sent again.
func (w *console) retrying(err error, left time.Duration) {
	w.Event(replock.Event{Kind: replock.EventRetrying, Err: err, Left: left})
}

// event shows an event of a wait, or of work on many locks.
func (w *console) event(e replock.Event) {
	was := w.last
	w.last, w.lastAt = e, w.elapsed()
	switch {
	case w.stop != nil && !w.inLines():
	case w.animated():
		w.start(true)
	case e.Kind == replock.EventWatching:
		w.reporter.Event(e)
	case e.Kind == replock.EventWaiting && !slices.Equal(held(e.Holders), held(was.Holders)):
		what := fmt.Sprintf("the %s lock", e.Mode)
		if also.Known(e.Key) {
			what = text.Escape(e.Key)
		}
		by := "held by"
		if onlyWaiters(e.Holders) {
			by = "reserved for"
		}
		w.Say("waiting for %s, %s %s", what, by, holders(e.Holders, 0, 0))
	case e.Kind != replock.EventWaiting && e.Kind != was.Kind:
		w.Say("%s", work(e))
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

// held returns texts that distinguish holders.
func held(holders []replock.Info) (names []string) {
	for _, h := range holders {
		names = append(names, h.ID+h.Key()+h.Holder)
	}
	slices.Sort(names)
	return names
}

// start starts the showing, at once or after a second.
func (w *console) start(now bool) {
	stop := make(chan struct{})
	w.stop = stop
	go func() {
		ticker := time.NewTicker(time.Second)
		defer ticker.Stop()
		for ; ; now = true {
			if now {
				w.mu.Lock()
				if w.stop == stop {
					w.show()
				}
				w.mu.Unlock()
			}
			select {
			case <-stop:
				return
			case <-ticker.C:
			}
		}
	}()
}

// show draws the live line, or says what has not been said.
func (w *console) show() {
	now := w.elapsed()
	if !w.inLines() {
		w.drawn = w.live(w.line(now))
		return
	}
	state, line := w.what, w.what
	switch {
	case w.isRetrying(now - w.lastAt):
		state, line = session.Words(w.last.Err, ""), w.line(now)
		if w.Verb { // the event was said
			return
		}
	case w.last.Kind != "" && w.last.Kind != replock.EventRetrying: // likewise
		return
	}
	if !slices.Contains(w.said, state) {
		w.said = append(w.said, state)
		w.Say("%s", line)
	}
}

// isRetrying reports whether a request that failed so long ago can still be under way.
func (w *console) isRetrying(since time.Duration) bool {
	return w.last.Kind == replock.EventRetrying && since < w.last.Left
}

// line is the live line. It is short, and what changes comes first: a terminal of 60 columns must
// show it.
func (w *console) line(now time.Duration) string {
	e, since := w.last, now-w.lastAt
	switch {
	case e.Kind == replock.EventWaiting:
		return fmt.Sprintf("waiting %s for %s", text.Duration(e.Waited+since), holders(e.Holders, 0, since))
	case e.Kind == replock.EventWatching:
		return fmt.Sprintf("watching %s whether it is stale: %s", text.Duration(e.Waited+since), holders(e.Holders, 0, since))
	case e.Kind == replock.EventReading || e.Kind == replock.EventReaping:
		return work(e)
	case w.isRetrying(since):
		return fmt.Sprintf("retrying for %s at most: %s", atMost(e.Left-since), session.Words(e.Err, ""))
	default:
		return lasting(w.what, now-w.began)
	}
}

// lasting adds to what is done for how long it has been done.
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

// atMost formats an upper bound.
func atMost(d time.Duration) string {
	return text.Duration((d + time.Second - 1).Truncate(time.Second))
}

// EndWait erases the live line.
func (w *console) EndWait() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.stop != nil {
		close(w.stop)
		w.stop = nil
	}
	w.what, w.last, w.interrupted, w.drawn, w.said = "", replock.Event{}, false, false, nil
	w.live("")
}
