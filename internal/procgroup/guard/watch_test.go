//go:build unix

package guard

import (
	"fmt"
	"io"
	"slices"
	"strings"
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
	page    Page
	rings   *io.PipeWriter
	answers answers
	sleep   atomic.Int64 // how long the machine was suspended
	step    atomic.Int64 // of the wall clock
	mu      sync.Mutex
	signals []string
	start   time.Time
	done    chan struct{}
	runs    atomic.Bool // a process of the group still runs after the kill
	looked  hook        // when the guard has read the page, and reads its clocks
	stops   hook        // at a stop
	running bool        // another process has continued the group since the last stop
}

// hook is a function that the guard calls, or nil.
type hook struct{ atomic.Pointer[func()] }

func (h *hook) call() {
	if f := h.Load(); f != nil {
		(*f)()
	}
}

// answers has a value for each answer. Write doesn't block.
type answers chan struct{}

func (a answers) Write(b []byte) (int, error) {
	for range b {
		a <- struct{}{}
	}
	return len(b), nil
}

// watched runs a fakeGuard of group 77 in a bubble. Its pipe is closed when run returns, as when our process
// dies.
func watched(t *testing.T, e Expiry, run func(f *fakeGuard)) {
	t.Helper()
	watchedGroup(t, 77, e, run)
}

func watchedGroup(t *testing.T, pgid int, e Expiry, run func(f *fakeGuard)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		r, w := io.Pipe()
		f := &fakeGuard{t: t, rings: w, answers: make(answers, 100), start: time.Now(), done: make(chan struct{})}
		f.page.Watch(pgid, e)
		ended := func(pgid int) bool { return pgid == 77 && !f.runs.Load() }
		go func() {
			defer close(f.done)
			w := watcher{page: &f.page, answers: f.answers, clock: f, ended: ended, runs: f.isRunning, kill: func(pid int, sig syscall.Signal) error {
				f.mu.Lock()
				defer f.mu.Unlock()
				f.signals = append(f.signals, fmt.Sprintf("%v %d %v", time.Since(f.start)+time.Duration(f.sleep.Load()), pid, sig))
				if sig == syscall.SIGSTOP {
					f.running = false
					f.stops.call()
				}
				return nil
			}}
			w.watch(r)
		}()
		synctest.Wait()
		run(f)
		w.Close()
		<-f.done
	})
}

func (f *fakeGuard) isRunning(int, int, bool) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.running
}

// cont continues the group as another process can.
func (f *fakeGuard) cont() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.running = true
}

// epoch is the wall clock when a fake guard starts.
const epoch = 946684800 * time.Second

func (f *fakeGuard) Elapsed() time.Duration {
	f.looked.call()
	return time.Since(f.start) + time.Duration(f.sleep.Load())
}

func (f *fakeGuard) Now() time.Time {
	return time.Unix(0, int64(epoch+time.Since(f.start))+f.sleep.Load()+f.step.Load())
}

func (f *fakeGuard) After(d time.Duration) <-chan time.Time { return time.After(d) }

// allow allows the group to run because its lock is seen now.
func (f *fakeGuard) allow(until time.Duration) { f.page.Allow(Allowance{until, clock.Read(f)}) }

// ring wants an answer, after which the guard follows the allowance.
func (f *fakeGuard) ring() {
	f.t.Helper()
	_, _ = f.rings.Write([]byte{0})
	f.answered(1)
	assert.That(f.t, f.page.FollowsCurrent(), "it follows an earlier allowance")
}

// answered checks the number of answers since the last check.
func (f *fakeGuard) answered(want int) {
	f.t.Helper()
	synctest.Wait()
	assert.Equal(f.t, len(f.answers), want, "answers after %v", time.Since(f.start))
	for range want {
		<-f.answers
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
// continue it. The guard reports only the first stop for an allowance, and counts all.
func TestWatchStops(t *testing.T) {
	watched(t, Stop, func(f *fakeGuard) {
		f.allow(200 * time.Millisecond)
		f.ring()
		f.after(100 * time.Millisecond)
		f.allow(3200 * time.Millisecond)
		f.after(3000 * time.Millisecond)
		f.answered(0)
		f.after(400*time.Millisecond, "3.2s -77 stopped (signal)", "3.4s -77 stopped (signal)")
		f.answered(1)
		assert.Equal(t, f.page.Stops(), 2)
		f.allow(time.Second) // an allowance that is over
		f.ring()
		f.after(0, "3.5s -77 stopped (signal)")
		f.allow(5 * time.Second)
		f.ring()
		f.after(1400 * time.Millisecond)
		f.answered(0)
		f.rings.Close()
		f.after(0, "4.9s -77 killed")
	})
}

// TestWatchContinued: a stopped group that another process continues is stopped again at once, and killed at the fourth
// time. The guard reports each time. It counts anew when the group was allowed to run.
func TestWatchContinued(t *testing.T) {
	for what, stop := range map[string]func(f *fakeGuard){
		"its allowance is over": func(f *fakeGuard) { f.allow(0) },
		"its clocks have parted": func(f *fakeGuard) {
			f.allow(time.Hour)
			f.step.Store(int64(-time.Hour))
		},
		"it is paused": func(f *fakeGuard) {
			f.page.Pause(true)
			f.allow(time.Hour)
		},
	} {
		for _, e := range []Expiry{Stop, Kill, Nothing} {
			if what != "it is paused" && e == Nothing || what == "its allowance is over" && e == Kill {
				continue
			}
			watched(t, e, func(f *fakeGuard) {
				stop(f)
				f.ring()
				f.after(0, "0s -77 stopped (signal)")
				continued := func(d time.Duration, want string) {
					f.cont()
					f.after(d, want)
					f.answered(1)
				}
				continued(HoldInterval, "10ms -77 stopped (signal)")
				continued(AlarmInterval, "11ms -77 stopped (signal)")
				f.after(300*time.Millisecond, "211ms -77 stopped (signal)")
				f.answered(0)
				continued(HoldInterval, "321ms -77 stopped (signal)")
				assert.Equal(t, f.page.Continued(), 3, what)
				continued(AlarmInterval, "322ms -77 killed")
				assert.Equal(t, f.page.Continued(), 4, what)
			})
		}
	}
	watched(t, Stop, func(f *fakeGuard) {
		for range 3 {
			f.page.Pause(true)
			f.allow(time.Hour)
			f.ring()
			for range 3 {
				f.cont()
				time.Sleep(HoldInterval)
				f.answered(1)
			}
			f.page.Pause(false)
			f.allow(time.Hour)
			f.ring()
			time.Sleep(time.Minute + clock.Tick/2)
			synctest.Wait()
			assert.That(t, !slices.ContainsFunc(f.signals, func(s string) bool { return strings.HasSuffix(s, "killed") }), "%q", f.signals)
		}
		f.signals = nil
	})
	watched(t, Stop, func(f *fakeGuard) { // our own SIGCONT comes just after the stop
		f.allow(0)
		f.stops.Store(new(f.page.Continue))
		f.ring()
		f.cont()
		f.after(HoldInterval, "0s -77 stopped (signal)", "10ms -77 stopped (signal)")
		assert.Equal(t, f.page.Continued(), 0)
	})
}

// TestWatchKills: with the Expiry Kill, a group is killed at the end of its allowance, even if the machine was
// suspended meanwhile. After a step of the wall clock it is only stopped.
func TestWatchKills(t *testing.T) {
	watched(t, Kill, func(f *fakeGuard) {
		f.allow(300 * time.Millisecond)
		f.ring()
		f.after(299 * time.Millisecond)
		f.after(time.Millisecond, "300ms -77 killed")
		f.allow(time.Minute)
		f.ring()
		f.after(100 * time.Millisecond)
		f.sleep.Store(int64(time.Hour))
		f.after(400*time.Millisecond, "1h0m0.8s -77 killed")
	})
	watched(t, Kill, func(f *fakeGuard) {
		f.allow(850 * time.Millisecond)
		f.ring()
		f.step.Store(int64(-time.Hour))
		f.after(800*time.Millisecond, "500ms -77 stopped (signal)", "700ms -77 stopped (signal)")
		f.answered(1)
		f.after(100*time.Millisecond, "850ms -77 killed")
	})
}

// TestWatchDoesNothing: with the Expiry Nothing, a group runs on after the end of its allowance and after a
// step of the wall clock. It is killed when our process ends.
func TestWatchDoesNothing(t *testing.T) {
	watched(t, Nothing, func(f *fakeGuard) {
		f.allow(time.Minute)
		f.step.Store(int64(time.Hour))
		f.after(2 * time.Minute)
		f.ring()
		f.rings.Close()
		f.after(0, "2m0s -77 killed")
	})
}

// TestWatchStopsWhenClocksPart: after a step of the wall clock, in either direction, the group is stopped
// until the lock has been looked at.
func TestWatchStopsWhenClocksPart(t *testing.T) {
	for _, step := range []time.Duration{2100 * time.Millisecond, -2100 * time.Millisecond, 9 * time.Hour, -9 * time.Hour} {
		watched(t, Stop, func(f *fakeGuard) {
			before := Allowance{time.Hour, clock.Read(f)}
			f.page.Allow(before)
			f.after(700 * time.Millisecond)
			f.step.Store(int64(step))
			f.after(400*time.Millisecond, "1s -77 stopped (signal)")
			f.answered(1) // unasked
			f.after(200*time.Millisecond, "1.2s -77 stopped (signal)")
			f.page.Allow(before)
			f.ring()
			f.after(0, "1.3s -77 stopped (signal)")
			f.step.Store(0) // the wall clock is stepped back, but the lock was not looked at
			f.after(time.Second)
			f.allow(time.Hour)
			f.after(time.Minute)
			f.step.Store(int64(step)) // the next ring detects it
			f.page.Allow(before)
			f.ring()
			f.after(0, "1m2.3s -77 stopped (signal)")
		})
	}
}

// TestWatchLooks: the guard looks at the page at intervals, so that repolock notices that it isn't stopped.
func TestWatchLooks(t *testing.T) {
	for _, e := range []Expiry{Stop, Kill, Nothing} {
		f := &fakeGuard{start: time.Now()}
		w := watcher{page: &f.page, clock: f}
		wait := w.look(false)
		assert.That(t, wait > 0 && wait <= 5*time.Second, "before the first allowance after %v", wait)
		f.page.Watch(77, e)
		f.allow(time.Hour)
		wait = w.look(false)
		assert.That(t, wait > 0 && wait <= 5*time.Second && f.page.Follows(1), "again after %v", wait)
	}
}

// TestWatchForgives: neither a suspend nor the slewing of the wall clock (NTP does up to 500 ppm) counts as a step. A
// step after them does.
func TestWatchForgives(t *testing.T) {
	for _, slew := range []time.Duration{500, -500} { // microseconds a second
		watched(t, Stop, func(f *fakeGuard) {
			f.allow(24 * time.Hour)
			f.sleep.Store(int64(8 * time.Hour))
			for range 3 * 360 {
				time.Sleep(10 * time.Second)
				f.step.Add(int64(10 * slew * time.Microsecond))
			}
			f.after(0)
			f.allow(24 * time.Hour)
			f.after(10 * time.Second)
			f.step.Add(int64(3 * time.Second))
			f.after(500*time.Millisecond, fmt.Sprintf("%v -77 stopped (signal)", f.Elapsed()+500*time.Millisecond))
			f.answered(1)
		})
	}
}

// TestWatchRefuses: the guard sends no signal to the groups 0 and 1 and to negative ones, which are every process or
// more than one group, and none before the first allowance.
func TestWatchRefuses(t *testing.T) {
	for _, pgid := range []int{1, 0, -5, 77} {
		watchedGroup(t, pgid, Stop, func(f *fakeGuard) {
			if pgid != 77 {
				f.allow(0)
			}
			f.ring()
			f.after(time.Minute)
			f.rings.Close()
			f.after(0)
			assert.That(t, f.ended(), "%d: it goes on", pgid)
		})
	}
}

// TestWatchTooLate: an allowance is extended while the guard is on its way from the page to a signal. If the guard
// hasn't read its clocks yet, it sends no signal. If it is just sending a stop, it reports that when it follows the
// extended allowance, even if it has reported a stop for the earlier one.
func TestWatchTooLate(t *testing.T) {
	for _, expiry := range []Expiry{Stop, Kill} {
		watched(t, expiry, func(f *fakeGuard) {
			f.allow(time.Second)
			f.ring()
			time.Sleep(900 * time.Millisecond)
			synctest.Wait()
			reads := 0
			f.looked.Store(new(func() {
				if reads++; reads == 1 { // by the guard, at a second
					f.page.Allow(Allowance{time.Hour, clock.Reading{Wall: epoch}})
				}
			}))
			f.after(10 * time.Second)
			f.answered(0)
		})
	}
	for _, late := range []int{1, 2} {
		watched(t, Stop, func(f *fakeGuard) {
			stops := 0
			f.stops.Store(new(func() {
				if stops++; stops == late {
					f.page.Allow(Allowance{time.Hour, clock.Reading{Wall: epoch}})
				}
			}))
			f.allow(100 * time.Millisecond)
			f.ring()
			time.Sleep(100*time.Millisecond + time.Duration(late-1)*StopInterval)
			f.answered(late)
			assert.That(t, f.page.FollowsCurrent(), "it answers before it follows the extended allowance")
			time.Sleep(time.Minute)
			f.answered(0)
			assert.That(t, stops == late && f.page.Stops() == uint32(late), "stops %d, counted %d", stops, f.page.Stops())
		})
	}
}

// TestWatchWaitsForTheEnd: a guard that keeps files open ends when no process of the group runs. It sends only
// one signal, because another group can get the number.
func TestWatchWaitsForTheEnd(t *testing.T) {
	watched(t, Stop, func(f *fakeGuard) {
		f.runs.Store(true)
		f.allow(time.Hour)
		f.rings.Close()
		f.after(10*time.Second, "0s -77 killed")
		assert.That(t, !f.ended(), "it has ended before the group")
		f.runs.Store(false)
		f.after(StopInterval)
		assert.That(t, f.ended(), "the group has ended, and the guard hasn't")
	})
}

// TestPage: a reader of the page gets a whole allowance, while another process writes new ones. The page of a guard
// that ended in a stop counts that stop.
func TestPage(t *testing.T) {
	var p Page
	done := make(chan struct{})
	go func() {
		defer close(done)
		for i := range time.Duration(200_001) { // the last version is odd: its slot isn't the first
			p.Allow(Allowance{i, clock.Reading{Wall: -i, Elapsed: 3 * i}})
		}
	}()
	for last, running := uint32(0), true; running; {
		select {
		case <-done:
			running = false
		default:
		}
		a, v := p.allowance()
		i := a.Until
		assert.Need(t, a == Allowance{i, clock.Reading{Wall: -i, Elapsed: 3 * i}} && v >= last && (v == 0 || i == time.Duration(v-1)), "%+v, version %d", a, v)
		last = v
	}
	assert.That(t, !p.Follows(1) && p.Follows(0), "it follows too much")
	p.Follow(1<<32 - 1)
	p.version.Store(1<<32 - 1)
	p.Allow(Allowance{})
	assert.That(t, !p.FollowsCurrent(), "a version that has begun again counts as an early one")

	var counts []uint32
	count := func() { counts = append(counts, p.Stops()) }
	p.Stop(count)
	p.Stop(func() {
		count()
		p.GuardDied()
		count()
		p.GuardDied()
		count()
	})
	assert.Equal(t, counts, []uint32{0, 1, 2, 2})
}
