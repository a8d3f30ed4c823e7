//go:build unix

package guard

import (
	"bytes"
	"fmt"
	"io"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/repolock/repolock/internal/clock"
)

// fakeGuard is the guard's own decisions, on a clock of the test.
type fakeGuard struct {
	orders  *io.PipeWriter
	answers heard
	sleep   atomic.Int64 // how much the machine was suspended
	step    atomic.Int64 // of the wall clock
	mu      sync.Mutex
	signals []string
	start   time.Time
	seq     uint64
	done    chan struct{}
	runs    atomic.Bool // a process of the group, after it was killed
}

// heard are answers. A guard doesn't wait until they are read.
type heard chan Answer

func (h heard) Write(record []byte) (int, error) {
	a, err := ReadAnswer(bytes.NewReader(record))
	h <- a
	return len(record), err
}

func newFakeGuard() *fakeGuard {
	or, ow := io.Pipe()
	f := &fakeGuard{orders: ow, answers: make(heard, 100), start: time.Now(), done: make(chan struct{})}
	go func() {
		defer close(f.done)
		w := watcher{answers: f.answers, read: f.read, ended: f.ended, kill: func(pid int, sig syscall.Signal) error {
			f.mu.Lock()
			defer f.mu.Unlock()
			f.signals = append(f.signals, fmt.Sprintf("%v %d %v", f.elapsed(), pid, sig))
			return nil
		}}
		w.watch(or)
	}()
	return f
}

func (f *fakeGuard) elapsed() time.Duration {
	return time.Since(f.start) + time.Duration(f.sleep.Load())
}

func (f *fakeGuard) ended(pgid int) bool { return pgid == 77 && !f.runs.Load() }

// epoch is the wall clock when a fake guard starts.
const epoch = 946684800 * time.Second

func (f *fakeGuard) read() clock.Reading {
	e := f.elapsed()
	return clock.Reading{Wall: epoch + e + time.Duration(f.step.Load()), Elapsed: e}
}

// allow sends an order for a lock that was seen just now.
func (f *fakeGuard) allow(t *testing.T, e Expiry, until time.Duration) Answer {
	t.Helper()
	return f.order(t, e, Allowance{until, f.read()})
}

func (f *fakeGuard) answer(t *testing.T) Answer {
	t.Helper()
	select {
	case a := <-f.answers:
		return a
	case <-time.After(10 * time.Second):
		t.Fatal("no answer")
		return Answer{}
	}
}

func (f *fakeGuard) order(t *testing.T, e Expiry, allowance Allowance) Answer {
	t.Helper()
	f.seq++
	if err := (Order{e, 77, allowance, f.seq}).Write(f.orders); err != nil {
		t.Fatal(err)
	}
	a := f.answer(t)
	if a.Seq != f.seq {
		t.Fatal(a)
	}
	synctest.Wait()
	return a
}

func (f *fakeGuard) want(t *testing.T, signals ...string) {
	t.Helper()
	synctest.Wait()
	f.mu.Lock()
	defer f.mu.Unlock()
	if !slices.Equal(f.signals, signals) {
		t.Errorf("got %q, want %q", f.signals, signals)
	}
	f.signals = nil
}

func TestWatchStops(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeGuard()
		f.allow(t, Stop, 3200*time.Millisecond)
		time.Sleep(3100 * time.Millisecond)
		f.want(t)
		time.Sleep(400 * time.Millisecond)
		f.want(t, "3.2s -77 stopped (signal)", "3.4s -77 stopped (signal)")
		if a := f.allow(t, Stop, time.Second); a.Stopped {
			t.Error("this allowance is over: it is still stopped")
		}
		f.want(t, "3.5s -77 stopped (signal)")
		if a := f.allow(t, Stop, 5*time.Second); !a.Stopped {
			t.Error("it must say that it had stopped the group")
		}
		if a := f.allow(t, Stop, 5*time.Second); a.Stopped {
			t.Error("but only once")
		}
		time.Sleep(1400 * time.Millisecond)
		f.want(t)
		f.orders.Close()
		<-f.done
		f.want(t, "4.9s -77 killed")
	})
}

func TestWatchAfterSuspend(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeGuard()
		f.allow(t, Kill, time.Minute)
		time.Sleep(100 * time.Millisecond)
		f.sleep.Store(int64(time.Hour))
		time.Sleep(500 * time.Millisecond)
		f.want(t, "1h0m0.5s -77 killed")
		f.orders.Close()
		<-f.done
	})
}

// The guard ignores orders for groups 0 and 1 and typed lines.
func TestWatchRefuses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		minus := -5
		for _, o := range [][7]uint64{{magic, 0, 1}, {magic, 0, 0}, {magic, 0, uint64(minus)}, {1, 0, 77}} {
			f := newFakeGuard()
			if err := write(f.orders, o[:]...); err != nil {
				t.Fatal(err)
			}
			<-f.done
			f.want(t)
		}
		f := newFakeGuard()
		f.orders.Close() // we died before anything was started
		<-f.done
		f.want(t)
	})
}

// TestProtocol: what is written is read.
func TestProtocol(t *testing.T) {
	var pipe bytes.Buffer
	o := Order{Nothing, 1 << 22, Allowance{1, clock.Reading{Wall: -2, Elapsed: 3 << 40}}, 1<<64 - 1}
	if err := o.Write(&pipe); err != nil {
		t.Fatal(err)
	}
	if got, err := readOrder(&pipe); err != nil || got != o {
		t.Errorf("%+v, %v", got, err)
	}
	for _, a := range []Answer{{1, false, false}, {1 << 63, true, false}, {3, false, true}} {
		if err := a.write(&pipe); err != nil {
			t.Fatal(err)
		}
		if got, err := ReadAnswer(&pipe); err != nil || got != a {
			t.Errorf("%+v, %v", got, err)
		}
	}
	pipe.WriteString("not a whole answer"[:15])
	if _, err := ReadAnswer(&pipe); err != io.ErrUnexpectedEOF {
		t.Error(err)
	}
}

// A guard that keeps files open, and a lock with them, ends when no process of the group runs. It
// sends one signal: the group's number can become another group's.
func TestWatchWaitsForTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeGuard()
		f.runs.Store(true)
		f.allow(t, Stop, time.Hour)
		f.orders.Close()
		time.Sleep(10 * time.Second)
		f.want(t, "0s -77 killed")
		select {
		case <-f.done:
			t.Fatal("it has ended before the group")
		default:
		}
		f.runs.Store(false)
		time.Sleep(StopInterval)
		select {
		case <-f.done:
		default:
			t.Error("the group has ended, and the guard hasn't")
		}
		f.want(t)
		<-f.done
	})
}
