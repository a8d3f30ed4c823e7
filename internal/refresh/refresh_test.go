package refresh

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/repolock/repolock/internal/test/leapclock"
)

var errDown = errors.New("down")

// harness runs a Refresher of a 60 s lease and notes when attempts start.
type harness struct {
	*Refresher
	clock    *leapclock.Clock
	mu       sync.Mutex
	attempts []time.Duration
	failures []time.Duration
	gaveUp   time.Duration
}

func newHarness(attempt func(h *harness, ctx context.Context) error) *harness {
	h := &harness{clock: leapclock.New()}
	h.Refresher = New(Refresher{
		Schedule: ForTTL(time.Minute), Clock: h.clock,
		Drain:    8 * time.Second,
		Extended: func(time.Duration) {}, Early: func(time.Duration) time.Duration { return 0 },
		Attempt: func(ctx context.Context, _ bool) (Renewal, error) {
			sent := h.clock.Elapsed()
			h.mu.Lock()
			h.attempts = append(h.attempts, sent)
			h.mu.Unlock()
			if err := attempt(h, ctx); err != nil {
				return Renewal{}, err
			}
			return Renewal{Sent: sent}, nil
		},
		Failed: func(_ int, gaveUp bool, _ error) {
			h.failures = append(h.failures, h.clock.Elapsed())
			if gaveUp {
				h.gaveUp = h.clock.Elapsed()
			}
		},
	})
	return h
}

func (h *harness) sent() []time.Duration {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.attempts)
}

func seconds(s ...float64) (d []time.Duration) {
	for _, s := range s {
		d = append(d, time.Duration(s*float64(time.Second)))
	}
	return d
}

var ttls = []time.Duration{10 * time.Second, 17 * time.Second, time.Minute, time.Hour, 24 * time.Hour}

// TestThreeFailuresEndAtTheDeadline: for every ttl, three failures end the lease at its
// deadline, and the requests of an acquire end well before.
func TestThreeFailuresEndAtTheDeadline(t *testing.T) {
	for _, ttl := range ttls {
		s := ForTTL(ttl)
		end := s.Interval + time.Duration(s.Failures)*s.Failure
		if s.Failures != 3 || end > s.Deadline || s.Deadline-end > 3 || s.Deadline >= ttl {
			t.Errorf("ttl %v: the last failure ends at %v, the deadline is %v", ttl, end, s.Deadline)
		}
		if s.Interval != ttl/2 {
			t.Errorf("ttl %v: refreshed each %v", ttl, s.Interval)
		}
		if s.Budget != min(11*time.Second, ttl/4) || s.Timeout != min(8*time.Second, ttl*2/15) {
			t.Errorf("ttl %v: a request has %v, each send %v", ttl, s.Budget, s.Timeout)
		}
	}
}

// TestEarlyRefreshesComeApart: a renewal comes as much earlier as Early says, at most a
// tenth of the interval, and never later; and all else is as if the interval were shorter.
func TestEarlyRefreshesComeApart(t *testing.T) {
	for _, c := range []struct{ early, want time.Duration }{
		{0, 30 * time.Second}, {time.Second, 29 * time.Second}, {3 * time.Second, 27 * time.Second},
		{time.Hour, 27 * time.Second}, {-time.Hour, 30 * time.Second},
	} {
		synctest.Test(t, func(t *testing.T) {
			h := newHarness(func(h *harness, _ context.Context) error {
				if len(h.sent()) < 3 {
					return nil
				}
				return errDown
			})
			h.Early = func(most time.Duration) time.Duration {
				if most != 3*time.Second {
					t.Errorf("asked for %v at most", most)
				}
				return c.early
			}
			if err := h.Run(t.Context()); !errors.Is(err, ErrDeadline) {
				t.Errorf("Run: %v", err)
			}
			if got, want := h.sent()[:3], []time.Duration{c.want, 2 * c.want, 3 * c.want}; !slices.Equal(got, want) {
				t.Errorf("early by %v: attempts at %v, want %v", c.early, got, want)
			}
			if deadline := 2*c.want + 55*time.Second; h.gaveUp != deadline || len(h.failures) != 3 || h.failures[2] != deadline {
				t.Errorf("early by %v: gave up at %v, failures at %v, and the deadline is %v", c.early, h.gaveUp, h.failures, deadline)
			}
		})
	}
}

// TestPause: the pause between two tries is at most 10 s, and at most a fifth of the remaining
// time, so that the store is tried again and again until the deadline.
func TestPause(t *testing.T) {
	for n := 1; n < 100; n++ {
		for left := time.Duration(0); left < time.Hour; left = left*3/2 + time.Second {
			p := pause(n, left)
			if p > 10*time.Second || p > max(left/5, shortestPause) || p < shortestPause {
				t.Errorf("after %d failures, %v left: %v", n, left, p)
			}
			if next := pause(n+1, left); next < p {
				t.Errorf("after %d failures, %v left: %v, and after one more %v", n, left, p, next)
			}
		}
	}
}

func TestSchedule(t *testing.T) {
	third := ForTTL(time.Minute).Failure
	for name, c := range map[string]struct {
		attempt  func(*harness, context.Context) error
		first    []time.Duration // of the attempts
		failures []time.Duration
		deadline time.Duration
	}{
		"fails at once": {
			func(*harness, context.Context) error { return errDown },
			seconds(30, 30.25, 30.75, 31.75, 33.75, 37.75),
			[]time.Duration{30*time.Second + third, 30*time.Second + 2*third, 55 * time.Second}, 55 * time.Second,
		},
		"hangs": {
			func(_ *harness, ctx context.Context) error { <-ctx.Done(); return ctx.Err() },
			seconds(30), []time.Duration{30*time.Second + third, 30*time.Second + 2*third, 55 * time.Second}, 55 * time.Second,
		},
		"hangs and heeds nothing": {
			func(*harness, context.Context) error { time.Sleep(time.Hour); return nil },
			seconds(30), []time.Duration{30*time.Second + third, 30*time.Second + 2*third, 55 * time.Second}, 55 * time.Second,
		},
		"third answers": {
			func(h *harness, _ context.Context) error {
				if len(h.sent()) == 3 {
					return nil
				}
				return errDown
			},
			seconds(30, 30.25, 30.75, 60.75, 61, 61.5),
			[]time.Duration{60750*time.Millisecond + third, 60750*time.Millisecond + 2*third, 85750 * time.Millisecond}, 85750 * time.Millisecond,
		},
		"fails after 5 s": {
			func(*harness, context.Context) error { time.Sleep(5 * time.Second); return errDown },
			seconds(30, 35.25, 40.75), []time.Duration{30*time.Second + third, 30*time.Second + 2*third, 55 * time.Second}, 55 * time.Second,
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := newHarness(c.attempt)
				err := h.Run(t.Context())
				if !errors.Is(err, ErrDeadline) {
					t.Errorf("Run: %v", err)
				}
				if got := h.clock.Elapsed(); got != c.deadline {
					t.Errorf("ended at %v, want %v", got, c.deadline)
				}
				if got := h.sent(); len(got) < len(c.first) || !slices.Equal(got[:len(c.first)], c.first) {
					t.Errorf("attempts at %v, want %v…", got, c.first)
				}
				if !slices.Equal(h.failures, c.failures) {
					t.Errorf("failures at %v, want %v", h.failures, c.failures)
				}
				if h.gaveUp != c.deadline {
					t.Errorf("gave up at %v, want %v", h.gaveUp, c.deadline)
				}
				time.Sleep(2 * time.Hour) // for those that hang
			})
		})
	}
}

// TestTriedUntilTheDeadline: for every ttl, a store that comes back about 5 s before the
// deadline is not too late. Until then it is tried at least each 10 s.
func TestTriedUntilTheDeadline(t *testing.T) {
	for _, ttl := range ttls {
		n := 50
		if ttl > time.Minute {
			n = 5 // each takes thousands of tries
		}
		for i := range n {
			synctest.Test(t, func(t *testing.T) {
				s := ForTTL(ttl)
				back := s.Deadline - min(5*time.Second, s.Failure) + time.Duration(i)*time.Second/time.Duration(n)
				var h *harness
				h = newHarness(func(*harness, context.Context) error {
					if h.clock.Elapsed() < back {
						return errDown
					}
					return nil
				})
				h.Schedule = s
				ctx, cancel := context.WithCancel(t.Context())
				time.AfterFunc(s.Deadline+time.Second, cancel)
				if err := h.Run(ctx); !errors.Is(err, context.Canceled) {
					t.Errorf("ttl %v, back at %v: %v", ttl, back, err)
				}
				all := h.sent()
				for i, at := range all[1:] {
					if at-all[i] > longestPause && all[i] < back {
						t.Errorf("ttl %v: no try from %v to %v", ttl, all[i], at)
					}
				}
			})
		}
	}
}

// TestProgressIsKept: the progress of an attempt that failed half-way is committed, and the
// next attempt continues from there. A requested renewal begins anew.
func TestProgressIsKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(nil)
		var mu sync.Mutex
		var begun []bool
		committed := 0
		h.Attempt = func(_ context.Context, anew bool) (Renewal, error) {
			mu.Lock()
			defer mu.Unlock()
			begun = append(begun, anew)
			return Renewal{Commit: func() { mu.Lock(); defer mu.Unlock(); committed++ }}, errDown
		}
		ended := make(chan struct{})
		go func() { defer close(ended); _ = h.Run(t.Context()) }()
		time.Sleep(33 * time.Second)
		mu.Lock()
		if committed != 4 || !slices.Equal(begun, []bool{true, false, false, false}) {
			t.Errorf("%d committed, begun anew: %v", committed, begun)
		}
		mu.Unlock()
		_ = h.Refresher.Now(t.Context(), ended)
		mu.Lock()
		if begun = begun[4:]; !slices.Equal(begun, []bool{true}) {
			t.Errorf("asked for: begun anew: %v", begun)
		}
		mu.Unlock()
		<-ended
	})
}

// TestFailedAttemptThatExtends: a failed attempt can find that an earlier one was applied. The
// lease lasts longer then, and the caller gets the failure.
func TestFailedAttemptThatExtends(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const applied = 20 * time.Second
		h := newHarness(nil)
		h.Attempt = func(context.Context, bool) (Renewal, error) {
			return Renewal{Sent: applied}, errDown
		}
		ended := make(chan struct{})
		var err error
		go func() { defer close(ended); err = h.Run(t.Context()) }()
		time.Sleep(25 * time.Second)
		if err := h.Refresher.Now(t.Context(), ended); err != errDown {
			t.Errorf("the caller got: %v", err)
		}
		<-ended
		if got, want := h.clock.Elapsed(), applied+h.Deadline; !errors.Is(err, ErrDeadline) || got != want {
			t.Errorf("ended at %v, want %v: %v", got, want, err)
		}
	})
}

func TestStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(func(*harness, context.Context) error { return Stop(errDown) })
		if err := h.Run(t.Context()); err != errDown || h.clock.Elapsed() != 30*time.Second {
			t.Errorf("Run: %v at %v", err, h.clock.Elapsed())
		}
	})
}

// TestAnswerTooLate: an answer that comes after the deadline renews nothing, and
// is not committed.
func TestAnswerTooLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(nil)
		h.Attempt = func(context.Context, bool) (Renewal, error) {
			sent := h.clock.Elapsed()
			h.clock.Leap.Add(int64(time.Minute)) // suspended before the answer was read
			return Renewal{Sent: sent, Commit: func() { t.Error("committed") }}, nil
		}
		if err := h.Run(t.Context()); !errors.Is(err, ErrDeadline) {
			t.Errorf("Run: %v", err)
		}
	})
}

// TestSuspend: a deadline that passes in a suspend is noticed within half a second of waking. A process that
// didn't run hasn't failed.
func TestSuspend(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(func(*harness, context.Context) error { return nil })
		woken := time.AfterFunc(10*time.Second, func() { h.clock.Leap.Add(int64(time.Hour)) })
		defer woken.Stop()
		start := time.Now()
		if err := h.Run(t.Context()); !errors.Is(err, ErrDeadline) || len(h.sent()) > 0 || len(h.failures) > 0 {
			t.Errorf("Run: %v, attempts %v, failures %v", err, h.sent(), h.failures)
		}
		if late := time.Since(start) - 10*time.Second; late > 500*time.Millisecond {
			t.Errorf("noticed %v after waking", late)
		}
	})
}

// TestEndWaitsForTheAttempt: when Run has returned, no request is under way that could undo a
// later one. A request that hangs is waited for no longer than its timeout. A loss that it finds is
// returned.
func TestEndWaitsForTheAttempt(t *testing.T) {
	for takes, finds := range map[time.Duration]error{3 * time.Second: nil, 4 * time.Second: Stop(errDown), time.Hour: nil} {
		synctest.Test(t, func(t *testing.T) {
			h := newHarness(func(*harness, context.Context) error { time.Sleep(takes); return finds })
			ctx, cancel := context.WithCancel(t.Context())
			time.AfterFunc(31*time.Second, cancel)
			err := h.Run(ctx)
			want := min(30*time.Second+takes, 39*time.Second)
			if errors.Is(err, context.Canceled) != (finds == nil) || finds != nil && err != errDown || h.clock.Elapsed() != want {
				t.Errorf("Run: %v at %v, want %v", err, h.clock.Elapsed(), want)
			}
			time.Sleep(takes)
		})
	}
}

// TestNow: Now renews at once, and its failures don't count towards giving up.
func TestNow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var fail atomic.Bool
		fail.Store(true)
		h := newHarness(func(*harness, context.Context) error {
			if fail.Load() {
				return errDown
			}
			return nil
		})
		ended := make(chan struct{})
		go func() { defer close(ended); _ = h.Run(t.Context()) }()
		for range 5 {
			time.Sleep(time.Second)
			if err := h.Refresher.Now(t.Context(), ended); err != errDown {
				t.Errorf("Now: %v", err)
			}
		}
		fail.Store(false)
		time.Sleep(time.Second)
		if err := h.Refresher.Now(t.Context(), ended); err != nil {
			t.Errorf("Now: %v", err)
		}
		if sent := h.sent(); !slices.Equal(sent, seconds(1, 2, 3, 4, 5, 6)) {
			t.Errorf("attempts at %v", sent)
		}
		fail.Store(true)
		<-ended
		if got := h.clock.Elapsed(); got != 61*time.Second || h.gaveUp != 61*time.Second {
			t.Errorf("gave up at %v, ended at %v", h.gaveUp, got)
		}
		if err := h.Refresher.Now(t.Context(), ended); !errors.Is(err, ErrDeadline) {
			t.Errorf("Now after the end: %v", err)
		}
	})
}

// TestNowThatHangsIsNoFailure: an attempt that only Now has asked for is no failure, however long it lasts.
func TestNowThatHangsIsNoFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(func(_ *harness, ctx context.Context) error { <-ctx.Done(); return ctx.Err() })
		ended := make(chan struct{})
		go func() { defer close(ended); _ = h.Run(t.Context()) }()
		time.Sleep(5 * time.Second)
		if err := h.Refresher.Now(t.Context(), ended); !errors.Is(err, ErrDeadline) || len(h.failures) > 0 {
			t.Errorf("Now: %v, failures at %v", err, h.failures)
		}
		<-ended
	})
}

// TestNowIsAfterItWasAskedFor: an attempt under way might have looked before the call, so it
// doesn't count. Callers share the next attempt. If there is none, because the lock is lost,
// they get an error.
func TestNowIsAfterItWasAskedFor(t *testing.T) {
	for _, lost := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			h := newHarness(func(h *harness, _ context.Context) error {
				time.Sleep(2 * time.Second)
				if lost {
					return Stop(errDown)
				}
				return nil
			})
			ctx, cancel := context.WithCancel(t.Context())
			ended := make(chan struct{})
			go func() { defer close(ended); _ = h.Run(ctx) }()
			time.Sleep(31 * time.Second)
			var all sync.WaitGroup
			for range 3 {
				all.Go(func() {
					err := h.Refresher.Now(t.Context(), ended)
					if lost && (err != errDown || h.clock.Elapsed() != 32*time.Second) || !lost && (err != nil || h.clock.Elapsed() != 34*time.Second) {
						t.Errorf("Now: %v at %v", err, h.clock.Elapsed())
					}
				})
			}
			all.Wait()
			cancel()
			<-ended
			if n := len(h.sent()); n != 2 && !lost || n != 1 && lost {
				t.Errorf("%d attempts", n)
			}
		})
	}
}
