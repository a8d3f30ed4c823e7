//go:build unix

package guard

import (
	"bytes"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/repolock/repolock/internal/clock"
	"github.com/repolock/repolock/internal/test/assert"
)

// fakeGuard is a watcher with the clocks of the test, which records its signals.
type fakeGuard struct {
	t       *testing.T
	orders  *io.PipeWriter
	answers heard
	sleep   atomic.Int64 // how long the machine was suspended
	step    atomic.Int64 // of the wall clock
	mu      sync.Mutex
	signals []string
	start   time.Time
	seq     uint64
	done    chan struct{}
	runs    atomic.Bool // a process of the group still runs after the kill
}

// heard are the answers. Write doesn't block.
type heard chan Answer

func (h heard) Write(record []byte) (int, error) {
	a, err := ReadAnswer(bytes.NewReader(record))
	h <- a
	return len(record), err
}

// watched runs a fakeGuard in a bubble. The pipe of orders is closed when run returns, as when our process
// dies.
func watched(t *testing.T, run func(f *fakeGuard)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		or, ow := io.Pipe()
		f := &fakeGuard{t: t, orders: ow, answers: make(heard, 100), start: time.Now(), done: make(chan struct{})}
		ended := func(pgid int) bool { return pgid == 77 && !f.runs.Load() }
		go func() {
			defer close(f.done)
			w := watcher{answers: f.answers, read: f.read, ended: ended, kill: func(pid int, sig syscall.Signal) error {
				f.mu.Lock()
				defer f.mu.Unlock()
				f.signals = append(f.signals, fmt.Sprintf("%v %d %v", f.read().Elapsed, pid, sig))
				return nil
			}}
			w.watch(or)
		}()
		synctest.Wait()
		run(f)
		ow.Close()
		<-f.done
	})
}

// epoch is the wall clock when a fake guard starts.
const epoch = 946684800 * time.Second

func (f *fakeGuard) read() clock.Reading {
	e := time.Since(f.start) + time.Duration(f.sleep.Load())
	return clock.Reading{Wall: epoch + e + time.Duration(f.step.Load()), Elapsed: e}
}

// allow sends an order for a lock that is seen now, and checks the answer: "", "stopped" or "parted".
func (f *fakeGuard) allow(e Expiry, until time.Duration, want string) {
	f.t.Helper()
	f.order(e, Allowance{until, f.read()}, want)
}

func (f *fakeGuard) order(e Expiry, allowance Allowance, want string) {
	f.t.Helper()
	f.seq++
	assert.OK(f.t, (Order{e, 77, allowance, f.seq}).Write(f.orders))
	f.answer(want)
}

func (f *fakeGuard) answer(want string) {
	f.t.Helper()
	synctest.Wait()
	select {
	case a := <-f.answers:
		assert.Equal(f.t, a, Answer{f.seq, want == "stopped", want == "parted"}, "answers after %v", f.read().Elapsed)
	default:
		f.t.Fatal("no answer")
	}
}

// after waits, and checks the signals since the last check.
func (f *fakeGuard) after(d time.Duration, signals ...string) {
	f.t.Helper()
	time.Sleep(d)
	synctest.Wait()
	f.mu.Lock()
	defer f.mu.Unlock()
	assert.Equal(f.t, f.signals, signals)
	f.signals = nil
}

func (f *fakeGuard) ended() bool {
	select {
	case <-f.done:
		return true
	default:
		return false
	}
}

// TestWatchStops: a group is stopped at the end of its allowance, again and again, because another process can
// continue it. Only one answer reports that the guard had stopped the group.
func TestWatchStops(t *testing.T) {
	watched(t, func(f *fakeGuard) {
		f.allow(Stop, 200*time.Millisecond, "")
		f.after(100 * time.Millisecond)
		f.allow(Stop, 3200*time.Millisecond, "")
		f.after(3000 * time.Millisecond)
		f.after(400*time.Millisecond, "3.2s -77 stopped (signal)", "3.4s -77 stopped (signal)")
		f.allow(Stop, time.Second, "") // an allowance that is over: the group is still stopped
		f.after(0, "3.5s -77 stopped (signal)")
		f.allow(Stop, 5*time.Second, "stopped")
		f.allow(Stop, 5*time.Second, "")
		f.after(1400 * time.Millisecond)
		f.orders.Close()
		f.after(0, "4.9s -77 killed")
	})
}

// TestWatchKills: with the Expiry Kill, a group is killed at the end of its allowance, even if the machine was
// suspended meanwhile. While the clocks are apart it is only stopped.
func TestWatchKills(t *testing.T) {
	watched(t, func(f *fakeGuard) {
		f.allow(Kill, 300*time.Millisecond, "")
		f.after(299 * time.Millisecond)
		f.after(time.Millisecond, "300ms -77 killed")
		f.allow(Kill, time.Minute, "")
		f.after(100 * time.Millisecond)
		f.sleep.Store(int64(time.Hour))
		f.after(400*time.Millisecond, "1h0m0.8s -77 killed")
	})
	watched(t, func(f *fakeGuard) {
		f.allow(Kill, 850*time.Millisecond, "")
		f.step.Store(int64(-time.Hour))
		f.after(800*time.Millisecond, "500ms -77 stopped (signal)", "700ms -77 stopped (signal)")
		f.answer("parted")
		f.after(100*time.Millisecond, "850ms -77 killed")
	})
}

// TestWatchDoesNothing: with the Expiry Nothing, a group runs on after the end of its allowance and while the
// clocks are apart. It is killed when our process ends.
func TestWatchDoesNothing(t *testing.T) {
	watched(t, func(f *fakeGuard) {
		f.allow(Nothing, time.Minute, "")
		f.step.Store(int64(time.Hour))
		f.after(2 * time.Minute)
		f.orders.Close()
		f.after(0, "2m0s -77 killed")
	})
}

// TestWatchStopsWhenClocksPart: after a step of the wall clock, in either direction, the group is stopped
// until the lock has been looked at.
func TestWatchStopsWhenClocksPart(t *testing.T) {
	for _, step := range []time.Duration{2100 * time.Millisecond, -2100 * time.Millisecond, 9 * time.Hour, -9 * time.Hour} {
		watched(t, func(f *fakeGuard) {
			before := Allowance{time.Hour, f.read()}
			f.order(Stop, before, "")
			f.after(700 * time.Millisecond)
			f.step.Store(int64(step))
			f.after(400*time.Millisecond, "1s -77 stopped (signal)")
			f.answer("parted") // unasked
			f.after(200*time.Millisecond, "1.2s -77 stopped (signal)")
			f.order(Stop, before, "parted")
			f.after(0, "1.3s -77 stopped (signal)")
			f.step.Store(0) // the clocks are together again, but the lock was not looked at
			f.after(time.Second)
			f.allow(Stop, time.Hour, "stopped")
			f.after(time.Minute)
			f.step.Store(int64(step)) // the next order detects it
			f.order(Stop, before, "parted")
			f.after(0, "1m2.3s -77 stopped (signal)")
		})
	}
}

// TestWatchForgives: neither a suspend nor the slewing of the wall clock (NTP does up to 500 ppm) parts the
// clocks. A step after them does.
func TestWatchForgives(t *testing.T) {
	for _, slew := range []time.Duration{500, -500} { // microseconds a second
		watched(t, func(f *fakeGuard) {
			f.allow(Stop, 24*time.Hour, "")
			f.sleep.Store(int64(8 * time.Hour))
			for range 3 * 360 {
				time.Sleep(10 * time.Second)
				f.step.Add(int64(10 * slew * time.Microsecond))
			}
			f.after(0)
			f.allow(Stop, 24*time.Hour, "")
			f.after(10 * time.Second)
			f.step.Add(int64(3 * time.Second))
			f.after(500*time.Millisecond, fmt.Sprintf("%v -77 stopped (signal)", f.read().Elapsed+500*time.Millisecond))
			f.answer("parted")
		})
	}
}

// TestWatchRefuses: the guard ends, without a signal, after an order for group 0 or 1, a typed line, or no order.
func TestWatchRefuses(t *testing.T) {
	minus := -5
	for _, o := range [][]uint64{{magic, 0, 1, 0, 0, 0, 0}, {magic, 0, 0, 0, 0, 0, 0}, {magic, 0, uint64(minus), 0, 0, 0, 0}, {1, 0, 77, 0, 0, 0, 0}, nil} {
		watched(t, func(f *fakeGuard) {
			assert.OK(t, write(f.orders, o...))
			if o == nil {
				f.orders.Close()
			}
			f.after(0)
			assert.That(t, f.ended(), "%d: it goes on", o)
		})
	}
}

// TestWatchWaitsForTheEnd: a guard that keeps files open ends when no process of the group runs. It sends only
// one signal, because another group can get the number.
func TestWatchWaitsForTheEnd(t *testing.T) {
	watched(t, func(f *fakeGuard) {
		f.runs.Store(true)
		f.allow(Stop, time.Hour, "")
		f.orders.Close()
		f.after(10*time.Second, "0s -77 killed")
		assert.That(t, !f.ended(), "it has ended before the group")
		f.runs.Store(false)
		f.after(StopInterval)
		assert.That(t, f.ended(), "the group has ended, and the guard hasn't")
	})
}

// TestProtocol: orders and answers are read as they were written.
func TestProtocol(t *testing.T) {
	var pipe bytes.Buffer
	o := Order{Nothing, 1 << 22, Allowance{1, clock.Reading{Wall: -2, Elapsed: 3 << 40}}, 1<<64 - 1}
	assert.OK(t, o.Write(&pipe))
	got, err := readOrder(&pipe)
	assert.That(t, err == nil && got == o, "%+v, %v", got, err)
	for _, a := range []Answer{{1, false, false}, {1 << 63, true, false}, {3, false, true}} {
		assert.OK(t, a.write(&pipe))
		got, err := ReadAnswer(&pipe)
		assert.That(t, err == nil && got == a, "%+v, %v", got, err)
	}
	pipe.WriteString("not a whole answer"[:15])
	_, err = ReadAnswer(&pipe)
	assert.That(t, err == io.ErrUnexpectedEOF, "%v", err)
}
