package sim

import (
	"testing"
	"testing/synctest"
	"time"
)

// TestLockRestsOnTheLookBeforeIt: the look that a lock rests on is not the holder's first one, although
// that can be answered before the call returns.
func TestLockRestsOnTheLookBeforeIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := &holding{step: step{name: "c1.1"}, lock: granted{id: "1"}}
		w := &world{monitor: monitor{looks: map[string][]time.Time{}, grants: map[string]time.Time{}}}
		if at := w.lookOf(h); !at.IsZero() {
			t.Errorf("a lock without a look rests on that of %v", at)
		}
		look := func() time.Time {
			time.Sleep(time.Second)
			w.looks["c1.1"] = append(w.looks["c1.1"], time.Now())
			return time.Now()
		}
		look() // of an attempt that was refused
		restsOn := look()
		time.Sleep(time.Second)
		if at := w.lookOf(h); !at.Equal(restsOn) {
			t.Errorf("the lock that is granted now rests on the look of %v, want %v", at, restsOn)
		}
		w.decided("1")
		w.looks["c1.1"] = append(w.looks["c1.1"], time.Now()) // the holder's first one
		time.Sleep(time.Second)
		if at := w.lookOf(h); !at.Equal(restsOn) {
			t.Errorf("the lock rests on the look of %v, want %v", at, restsOn)
		}
	})
}

type granted struct {
	Held
	id string
}

func (n granted) ID() string { return n.id }
