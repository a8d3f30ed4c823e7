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

// TestSystemInABubble: in a bubble of testing/synctest all of the clock is the bubble's, to the nanosecond, and
// no time is 0.
func TestSystemInABubble(t *testing.T) {
	outside := System{}.Elapsed()
	synctest.Test(t, func(t *testing.T) {
		var c System
		before := Read(c)
		if before.Elapsed != time.Hour {
			t.Errorf("starts at %v", before.Elapsed)
		}
		if err := Sleep(t.Context(), c, 24*time.Hour); err != nil {
			t.Error(err)
		}
		if after := Read(c); after.Elapsed-before.Elapsed != 24*time.Hour || after.Wall-before.Wall != 24*time.Hour {
			t.Errorf("of 24h, %v passed since boot, and %v by the wall clock", after.Elapsed-before.Elapsed, after.Wall-before.Wall)
		}
	})
	if passed := (System{}).Elapsed() - outside; passed < 0 || passed > time.Hour {
		t.Errorf("%v passed outside", passed)
	}
}

// TestNoBubble: a machine's time is never taken for a bubble's, even if its wall clock is so wrong that
// time.Now has no monotonic reading.
func TestNoBubble(t *testing.T) {
	for _, c := range []struct {
		now  time.Time
		want bool
	}{
		{time.Now(), false},
		{time.Now().Round(0), true},
		{time.Unix(1<<33, 0), false}, // in 2242
		{time.Unix(-1<<33, 0), false},
		{time.Time{}, false},
	} {
		if got := ofBubble(c.now); got != c.want {
			t.Errorf("%v: %v", c.now, got)
		}
	}
}

type leaping struct {
	System
	start time.Time
	leap  *atomic.Int64
}

func (l leaping) Elapsed() time.Duration { return time.Since(l.start) + time.Duration(l.leap.Load()) }

// TestParted: a wall clock that was set by more than 2 s, ahead or back, has parted from the time since boot.
// One that is slewed by 1000 ppm at most hasn't.
func TestParted(t *testing.T) {
	for _, c := range []struct {
		wall, elapsed time.Duration
		parted        bool
	}{
		{0, 0, false}, {1900 * time.Millisecond, 0, false}, {2100 * time.Millisecond, 0, true},
		{-1900 * time.Millisecond, 0, false}, {-2100 * time.Millisecond, 0, true},
		{time.Hour + 5*time.Second, time.Hour, false}, {time.Hour + 6*time.Second, time.Hour, true},
		{time.Hour - 5*time.Second, time.Hour, false}, {time.Hour - 6*time.Second, time.Hour, true},
	} {
		earlier := Reading{Wall: 24 * time.Hour, Elapsed: time.Hour}
		later := Reading{earlier.Wall + c.wall, earlier.Elapsed + c.elapsed}
		if got := later.Parted(earlier); got != c.parted {
			t.Errorf("%v passed by the wall clock, and %v since boot: parted %t", c.wall, c.elapsed, got)
		}
	}
}

// stopped is a machine that is suspended while its wall clock is read, the first time.
type stopped struct{ leaping }

func (s stopped) Now() time.Time {
	now := s.start.Add(s.Elapsed())
	s.leap.CompareAndSwap(0, int64(time.Hour))
	return now
}

// TestReadIsOneMoment: a suspend between the readings of the two clocks doesn't part them.
func TestReadIsOneMoment(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := stopped{leaping{start: time.Now(), leap: new(atomic.Int64)}}
		if r := Read(c); r.Elapsed != time.Hour || r.Wall-time.Duration(c.start.UnixNano()) != time.Hour {
			t.Errorf("%v since boot, %v by the wall clock", r.Elapsed, r.Wall-time.Duration(c.start.UnixNano()))
		}
	})
}

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
