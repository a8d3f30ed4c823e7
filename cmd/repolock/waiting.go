package main

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/repolock/repolock/internal/clock"
	"github.com/repolock/repolock/replock"
)

// patience is what --wait says.
type patience time.Duration

// UnmarshalText understands a duration, and "forever".
func (p *patience) UnmarshalText(text []byte) error {
	if string(text) == "forever" {
		*p = patience(replock.Forever)
		return nil
	}
	d, err := time.ParseDuration(string(text))
	switch {
	case err != nil:
		return fmt.Errorf("%.80q: must be a time such as 90s, 15m or 2h, or forever", text)
	case d < 0:
		return fmt.Errorf("%v: must not be negative", d)
	}
	*p = patience(d)
	return nil
}

// waiting tells of those whom we wait for: on a terminal in a live line, elsewhere in a
// line when they change.
type waiting struct {
	r    *reporter
	mu   sync.Mutex
	last replock.Event
	at   time.Duration // when it was told
	stop chan struct{} // ends the live line; nil while there is none
}

// event tells what happens to the lock until it is held, and then.
func (w *waiting) event(e replock.Event) {
	if e.Kind == replock.EventWaiting {
		w.told(e)
		return
	}
	w.r.event(e) // may block, on a terminal that was stopped
}

// told is what the lock's events tell.
func (w *waiting) told(e replock.Event) {
	w.mu.Lock()
	defer w.mu.Unlock()
	before := names(w.last.Holders)
	w.last, w.at = e, clock.System{}.Elapsed()
	switch {
	case w.stop != nil:
	case w.r.animated():
		w.stop = make(chan struct{})
		go w.run(w.stop)
	case !slices.Equal(names(e.Holders), before):
		w.r.say("waiting for the %s lock: %s", e.Mode, inTheWay(e.Holders, 0, stamp))
	}
}

// run redraws the live line each second.
func (w *waiting) run(stop <-chan struct{}) {
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

func (w *waiting) draw() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.stop == nil {
		return
	}
	since := clock.System{}.Elapsed() - w.at
	// As short as can be: most of it is to be seen on a terminal of 80 columns.
	w.r.live(fmt.Sprintf("waiting %v: %s", (w.last.Waited + since).Round(time.Second), inTheWay(w.last.Holders, since, shortStamp)))
}

// end erases the live line.
func (w *waiting) end() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.stop != nil {
		close(w.stop)
		w.stop = nil
	}
	w.r.live("")
}

// names tell holders apart.
func names(holders []replock.Info) (names []string) {
	for _, h := range holders {
		names = append(names, h.ID+h.Key()+h.Holder)
	}
	slices.Sort(names)
	return names
}

// inTheWay says who is in the way, as it is so long after it was found: the first of
// them in full.
func inTheWay(holders []replock.Info, since time.Duration, stamp func(time.Time) string) string {
	if len(holders) == 0 {
		return "nobody"
	}
	h := holders[0]
	does := "held by"
	if h.State == "waiting" {
		does = "after"
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%s %s, %s", does, orUnknown(h.Holder), orUnknown(h.Operation))
	if !h.Acquired.IsZero() {
		fmt.Fprintf(&b, ", since %s", stamp(h.Acquired))
	}
	switch left := (h.Left - since).Round(time.Second); {
	case h.Verdict == replock.Unreadable:
		b.WriteString(", can't be read")
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

func orUnknown(s string) string {
	if s == "" {
		return "unknown"
	}
	return replock.Printable(s)
}
