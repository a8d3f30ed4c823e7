package sim

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/repolock/repolock/internal/clock"
	"github.com/repolock/repolock/replock"
)

// TestLockRestsOnTheLookBeforeIt: the look that a lock rests on is not the holder's first one, although
// that can be answered before the call returns.
func TestLockRestsOnTheLookBeforeIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &client{clock: &clientClock{machine: &machine{booted: time.Now().Add(-time.Hour)}}}
		h := &holding{p: &process{client: c}, step: step{name: "c1.1"}}
		w := &world{monitor: monitor{looks: map[string][]time.Time{}}}
		if at := w.lookOf(heldSince(h, c)); !at.IsZero() {
			t.Errorf("a lock without a look rests on that of %v", at)
		}
		look := func() time.Time {
			time.Sleep(time.Millisecond) // from when its clock is read until it is sent
			w.looks["c1.1"] = append(w.looks["c1.1"], time.Now())
			return time.Now()
		}
		look() // of an attempt that was refused
		time.Sleep(time.Second)
		heldSince(h, c)
		restsOn := look()
		time.Sleep(time.Second)
		look() // the holder's first one
		time.Sleep(time.Second)
		if at := w.lookOf(h); !at.Equal(restsOn) {
			t.Errorf("the lock rests on the look of %v, want %v", at, restsOn)
		}
	})
}

// heldSince makes now the time at which the look begins that a lock rests on.
func heldSince(h *holding, c *client) *holding {
	h.lock = seenAt{seen: replock.Reading(clock.Read(c.clock))}
	return h
}

type seenAt struct {
	Held
	seen replock.Reading
}

func (s seenAt) Seen() replock.Reading { return s.seen }
