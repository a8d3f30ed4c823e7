package main

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/repolock/repolock/cmd/internal/session"
	"github.com/repolock/repolock/internal/text"
	"github.com/repolock/repolock/replock"
)

// start starts the showing, at once or after a second.
func (w *console) start(now bool) {
	stop := make(chan struct{})
	w.stop = stop
	go func() {
		ticker := time.NewTicker(time.Second)
		defer ticker.Stop()
		for ; ; now = true {
			if now {
				w.tick(stop)
			}
			select {
			case <-stop:
				return
			case <-ticker.C:
			}
		}
	}()
}

func (w *console) tick(stop chan struct{}) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.stop == stop {
		w.show()
	}
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
