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
	before := time.Now()
	a := c.Elapsed()
	began := time.Now()
	<-c.After(20 * time.Millisecond)
	ended := time.Now()
	b := c.Elapsed()
	after := time.Now()
	const ticks = 20 * time.Millisecond // Windows has one each 16 ms
	least, most := ended.Sub(began)-ticks, after.Sub(before)+ticks
	if passed := b - a; passed <= 0 || passed < least || passed > most {
		t.Errorf("%v to %v passed, and the clock shows %v", least, most, passed)
	}
}

type leaping struct {
	System
	start time.Time
	leap  *atomic.Int64
}

func (l leaping) Elapsed() time.Duration { return time.Since(l.start) + time.Duration(l.leap.Load()) }

// TestSleep: Sleep returns when its time has come, even by a suspend that no timer counted, or
// when its context ends.
func TestSleep(t *testing.T) {
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
