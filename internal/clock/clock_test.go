package clock

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

func TestSystemElapsed(t *testing.T) {
	var c System
	a, before := c.Elapsed(), time.Now()
	<-c.After(20 * time.Millisecond)
	b, passed := c.Elapsed(), time.Since(before)
	// Windows ticks each 16 ms.
	if d := (b - a) - passed; b <= a || d > 20*time.Millisecond || d < -20*time.Millisecond {
		t.Errorf("%v passed, and the clock says %v", passed, b-a)
	}
}

type leaping struct {
	System
	start time.Time
	leap  *atomic.Int64
}

func (l leaping) Elapsed() time.Duration { return time.Since(l.start) + time.Duration(l.leap.Load()) }

// TestSleepUntil ends when its time has come, be it by a suspend that no timer
// counted, or when its context ends.
func TestSleepUntil(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := leaping{start: time.Now(), leap: new(atomic.Int64)}
		if err := Sleep(t.Context(), c, time.Hour); err != nil || c.Elapsed() != time.Hour {
			t.Errorf("%v at %v", err, c.Elapsed())
		}
		time.AfterFunc(time.Minute, func() { c.leap.Store(int64(24 * time.Hour)) })
		start := time.Now()
		if err := Sleep(t.Context(), c, 10*time.Hour); err != nil || time.Since(start) > time.Minute+Tick {
			t.Errorf("%v, %v after the leap", err, time.Since(start)-time.Minute)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if err := Sleep(ctx, c, time.Hour); err != context.DeadlineExceeded {
			t.Errorf("after its context: %v", err)
		}
	})
}
