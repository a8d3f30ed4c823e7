package clock

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/repolock/repolock/internal/test/assert"
	"github.com/repolock/repolock/internal/test/leapclock"
)

// TestSystemElapsed: Elapsed advances as fast as Go's monotonic clock.
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
	assert.That(t, b > a && b-a >= least && b-a <= most, "%v to %v passed, and the clock shows %v", least, most, b-a)
}

// TestSystemInABubble: in a bubble of testing/synctest, System is the bubble's clock, to the nanosecond, and
// Elapsed begins at an hour.
func TestSystemInABubble(t *testing.T) {
	outside := System{}.Elapsed()
	synctest.Test(t, func(t *testing.T) {
		var c System
		before := Read(c)
		assert.That(t, before.Elapsed == time.Hour, "starts at %v", before.Elapsed)
		assert.OK(t, Sleep(t.Context(), c, 24*time.Hour))
		assert.Equal(t, Read(c), Reading{before.Wall + 24*time.Hour, before.Elapsed + 24*time.Hour})
	})
	passed := (System{}).Elapsed() - outside
	assert.That(t, passed >= 0 && passed <= time.Hour, "%v passed outside", passed)
}

// TestNoBubble: the time of a machine isn't taken for a bubble's, even if its wall clock is so wrong that
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
		assert.Equal(t, isBubbleTime(c.now), c.want, "%v", c.now)
	}
}

// TestParted: the wall clock was stepped if it was set by more than 2 s, ahead or back. Slewing by up
// to 1000 ppm doesn't count as a step.
func TestParted(t *testing.T) {
	for _, c := range []struct {
		wall, elapsed time.Duration
		stepped       bool
	}{
		{0, 0, false}, {1900 * time.Millisecond, 0, false}, {2100 * time.Millisecond, 0, true},
		{-1900 * time.Millisecond, 0, false}, {-2100 * time.Millisecond, 0, true},
		{time.Hour + 5*time.Second, time.Hour, false}, {time.Hour + 6*time.Second, time.Hour, true},
		{time.Hour - 5*time.Second, time.Hour, false}, {time.Hour - 6*time.Second, time.Hour, true},
	} {
		earlier := Reading{Wall: 24 * time.Hour, Elapsed: time.Hour}
		later := Reading{earlier.Wall + c.wall, earlier.Elapsed + c.elapsed}
		assert.Equal(t, later.SteppedSince(earlier), c.stepped, "%v passed by the wall clock, and %v since boot", c.wall, c.elapsed)
	}
}

// stopped is a machine that is suspended while its wall clock is read, the first time.
type stopped struct{ *leapclock.Clock }

func (s stopped) Now() time.Time {
	now := s.Clock.Now()
	s.Leap.CompareAndSwap(0, int64(time.Hour))
	return now
}

// TestReadIsOneMoment: Read repeats its readings if the machine is suspended between them.
func TestReadIsOneMoment(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Duration(time.Now().UnixNano())
		assert.Equal(t, Read(stopped{leapclock.New()}), Reading{start + time.Hour, time.Hour})
	})
}

// TestWatch: a Watch wakes in time, on each system, and as often as it is asked.
func TestWatch(t *testing.T) {
	w := NewWatch(System{})
	defer w.Stop()
	w.After(time.Hour)
	for range 3 {
		began := (System{}).Elapsed()
		for end := began + 20*time.Millisecond; (System{}).Elapsed() < end; {
			assert.OK(t, w.Sleep(t.Context(), end-(System{}).Elapsed()))
		}
		took := (System{}).Elapsed() - began
		assert.That(t, took < time.Minute, "it took %v", took)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	assert.Is(t, w.Sleep(ctx, time.Hour), context.DeadlineExceeded)
}

// TestSleep: Sleep returns when d has passed, even if a part of it is a suspend, which no timer counts, or when
// its context ends.
func TestSleep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := leapclock.New()
		assert.Is(t, Sleep(t.Context(), c, time.Hour), nil)
		assert.Equal(t, c.Elapsed(), time.Hour)
		time.AfterFunc(time.Minute+time.Second, func() { c.Leap.Store(int64(24 * time.Hour)) })
		start := time.Now()
		assert.Is(t, Sleep(t.Context(), c, 10*time.Hour), nil)
		assert.That(t, time.Since(start) <= time.Minute+1500*time.Millisecond, "%v after the leap", time.Since(start)-time.Minute-time.Second)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		assert.Is(t, Sleep(ctx, c, time.Hour), context.DeadlineExceeded)
	})
}

// TestBetween: a time that another program has written can be any year, and a sum of the result and a ttl doesn't overflow.
func TestBetween(t *testing.T) {
	now := time.Date(2026, 3, 7, 9, 0, 0, 0, time.UTC)
	for at, want := range map[time.Time]time.Duration{
		now: 0, now.Add(-time.Hour): time.Hour, now.Add(time.Hour): -time.Hour,
		time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC): -century, {}: century, time.Date(0, 1, 1, 0, 0, 0, 0, time.UTC): century,
	} {
		assert.Equal(t, Between(at, now), want, "from %v", at)
	}
}
