package main

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/repolock/repolock/cmd/internal/also"
	"github.com/repolock/repolock/internal/clock"
	"github.com/repolock/repolock/internal/text"
	"github.com/repolock/repolock/replock"
)

// console is a reporter that shows a wait for the lock: on a terminal in a live line,
// elsewhere in a line when the holders change.
type console struct {
	*reporter
	mu     sync.Mutex
	last   replock.Event
	lastAt time.Duration // when it came
	stop   chan struct{} // ends the live line; nil while there is none
}

// Event shows an event of the lock. It can block, on a terminal that was stopped.
func (w *console) Event(e replock.Event) {
	if e.Kind != replock.EventWaiting {
		w.reporter.Event(e)
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	before := names(w.last.Holders)
	w.last, w.lastAt = e, clock.System{}.Elapsed()
	switch {
	case w.stop != nil:
	case w.animated():
		w.stop = make(chan struct{})
		go w.run(w.stop)
	case !slices.Equal(names(e.Holders), before):
		what := fmt.Sprintf("the %s lock", e.Mode)
		if also.Known(e.Key) {
			what = text.Escape(e.Key)
		}
		w.Say("waiting for %s: %s", what, inTheWay(e.Holders, 0, stamp))
	}
}

func (w *console) run(stop <-chan struct{}) {
	ticker := time.NewTicker(time.Second)
	defer ticker.Stop()
	for {
		w.draw()
		select {
		case <-stop:
			return
		case <-ticker.C:
		}
	}
}

func (w *console) draw() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.stop == nil {
		return
	}
	since := clock.System{}.Elapsed() - w.lastAt
	// Keep it short: most of it must be seen on a terminal of 80 columns.
	w.live(fmt.Sprintf("waiting %v: %s", (w.last.Waited + since).Round(time.Second), inTheWay(w.last.Holders, since, shortStamp)))
}

// EndWait erases the live line.
func (w *console) EndWait() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.stop != nil {
		close(w.stop)
		w.stop = nil
	}
	w.live("")
}

// names returns texts that distinguish holders.
func names(holders []replock.Info) (names []string) {
	for _, h := range holders {
		names = append(names, h.ID+h.Key()+h.Holder)
	}
	slices.Sort(names)
	return names
}

// inTheWay describes the holders as they are now, since after they were found: the first
// of them in full.
func inTheWay(holders []replock.Info, since time.Duration, stamp func(time.Time) string) string {
	if len(holders) == 0 {
		return "no holder was seen"
	}
	h := holders[0]
	does := "held by"
	if h.State == "waiting" {
		does = "after"
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%s %s", does, text.Or(h.Holder, "unknown"))
	if h.Operation != "" {
		fmt.Fprintf(&b, ", %s", text.Or(h.Operation, "unknown"))
	}
	if !h.Acquired.IsZero() {
		fmt.Fprintf(&b, ", since %s", stamp(h.Acquired))
	}
	switch left := (h.Left - since).Round(time.Second); {
	case h.Verdict == replock.Unreadable:
		b.WriteString(", can't be read")
	case h.TTL == 0 && h.Expires.IsZero(): // it has no end of its own
	case left > 0:
		fmt.Fprintf(&b, ", expires in %v unless refreshed", left)
	default:
		b.WriteString(", about to expire unless refreshed")
	}
	if n := len(holders) - 1; n > 0 {
		fmt.Fprintf(&b, "; and %d more", n)
	}
	return b.String()
}
