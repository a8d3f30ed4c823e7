//go:build unix

package guard

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/repolock/repolock/internal/clock"
)

// parted is the answer that a guard sends unasked when it stops the group because its clocks
// have parted.
func (f *fakeGuard) parted(t *testing.T) {
	t.Helper()
	if a := f.answer(t); a != (Answer{f.seq, false, true}) {
		t.Errorf("it answers %+v", a)
	}
}

// If the wall clock is stepped, in either direction, the group is stopped until a look at the
// lock since then.
func TestWatchStopsWhenClocksPart(t *testing.T) {
	for _, step := range []time.Duration{2100 * time.Millisecond, -2100 * time.Millisecond, 9 * time.Hour, -9 * time.Hour} {
		synctest.Test(t, func(t *testing.T) {
			f := newFakeGuard()
			before := Allowance{time.Hour, clock.Reading{Wall: epoch}}
			f.order(t, Stop, before)
			time.Sleep(700 * time.Millisecond)
			f.want(t)
			f.step.Store(int64(step))
			time.Sleep(400 * time.Millisecond)
			f.parted(t)
			f.want(t, "1s -77 stopped (signal)")
			time.Sleep(200 * time.Millisecond)
			f.want(t, "1.2s -77 stopped (signal)") // another process might have continued it
			if a := f.order(t, Stop, before); a.Stopped || !a.Parted {
				t.Errorf("%v: to an earlier order it answers %+v", step, a)
			}
			f.want(t, "1.3s -77 stopped (signal)")
			if a := f.allow(t, Stop, time.Hour); !a.Stopped || a.Parted {
				t.Errorf("%v: to a present order it answers %+v", step, a)
			}
			time.Sleep(time.Minute)
			f.want(t)
			f.orders.Close()
			<-f.done
		})
	}
}

// An order that comes after the clocks have parted detects it at once.
func TestWatchLooksAtClocksWithEachOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeGuard()
		f.order(t, Stop, Allowance{time.Hour, clock.Reading{Wall: epoch}})
		time.Sleep(100 * time.Millisecond)
		f.step.Store(int64(3 * time.Second))
		if a := f.order(t, Stop, Allowance{time.Hour, clock.Reading{Wall: epoch}}); !a.Parted {
			t.Errorf("it answers %+v", a)
		}
		f.want(t, "100ms -77 stopped (signal)")
		f.orders.Close()
		<-f.done
	})
}

// A group that would be killed at its end is stopped, and still killed at its end.
func TestWatchKillsNothingWhenClocksPart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeGuard()
		f.allow(t, Kill, 850*time.Millisecond)
		f.step.Store(int64(-time.Hour))
		time.Sleep(800 * time.Millisecond)
		f.parted(t)
		f.want(t, "500ms -77 stopped (signal)", "700ms -77 stopped (signal)")
		time.Sleep(100 * time.Millisecond)
		f.want(t, "850ms -77 killed")
		f.orders.Close()
		<-f.done
	})
}

func TestWatchDoesNothingWhenClocksPart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeGuard()
		f.allow(t, Nothing, time.Minute)
		f.step.Store(int64(time.Hour))
		time.Sleep(10 * time.Second)
		f.want(t)
		f.orders.Close()
		<-f.done
	})
}

// A clock that is slewed isn't stepped: 500 ppm are the most that NTP does.
func TestWatchForgivesSlew(t *testing.T) {
	for _, slew := range []time.Duration{500, -500} { // microseconds a second
		synctest.Test(t, func(t *testing.T) {
			f := newFakeGuard()
			f.allow(t, Stop, 24*time.Hour)
			for range 3 * 3600 {
				time.Sleep(time.Second)
				f.step.Add(int64(slew * time.Microsecond))
			}
			f.want(t)
			// A step on top of it isn't overlooked for long.
			f.allow(t, Stop, 24*time.Hour)
			time.Sleep(10 * time.Second)
			f.step.Add(int64(3 * time.Second))
			time.Sleep(600 * time.Millisecond)
			f.parted(t)
			f.mu.Lock()
			if len(f.signals) == 0 {
				t.Error("not stopped")
			}
			f.mu.Unlock()
			f.orders.Close()
			<-f.done
		})
	}
}

// A suspend is counted by both clocks.
func TestWatchForgivesSuspend(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeGuard()
		f.allow(t, Stop, 24*time.Hour)
		f.sleep.Store(int64(8 * time.Hour))
		time.Sleep(time.Minute)
		f.want(t)
		f.orders.Close()
		<-f.done
	})
}
