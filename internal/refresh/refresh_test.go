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

	"github.com/repolock/repolock/internal/test/assert"
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
	ended    chan struct{}
	err      error
}

func newHarness(attempt func(h *harness, ctx context.Context) error) *harness {
	h := &harness{clock: leapclock.New()}
	h.Refresher = New(Refresher{
		Schedule: ForTTL(time.Minute), Clock: h.clock,
		Drain:    8 * time.Second,
		Extended: func(time.Duration) {}, Jitter: func(time.Duration) time.Duration { return 0 },
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

// start runs the Refresher in a goroutine. It sets err, and then closes ended.
func (h *harness) start(ctx context.Context) {
	h.ended = make(chan struct{})
	go func() {
		defer close(h.ended)
		h.err = h.run(ctx)
	}()
}

// run returns ErrDeadline for a lease that has expired.
func (h *harness) run(ctx context.Context) error {
	expired, err := h.Run(ctx)
	if expired {
		return ErrDeadline
	}
	return err
}

func (h *harness) now(t *testing.T) error {
	t.Helper()
	return h.Refresher.Now(t.Context(), h.ended)
}

func bubble(t *testing.T, attempt func(*harness, context.Context) error, test func(*testing.T, *harness)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { test(t, newHarness(attempt)) })
}

func up(*harness, context.Context) error   { return nil }
func down(*harness, context.Context) error { return errDown }

func hangs(_ *harness, ctx context.Context) error {
	<-ctx.Done()
	return ctx.Err()
}

func seconds(s ...float64) (d []time.Duration) {
	for _, s := range s {
		d = append(d, time.Duration(s*float64(time.Second)))
	}
	return d
}

// TestThreeFailuresEndAtTheDeadline: for every ttl, three failures end the lease at its
// deadline, and the requests of an acquire end well before.
func TestThreeFailuresEndAtTheDeadline(t *testing.T) {
	for _, ttl := range []time.Duration{10 * time.Second, 17 * time.Second, time.Minute, time.Hour, 24 * time.Hour} {
		s := ForTTL(ttl)
		end := s.Interval + time.Duration(s.Failures)*s.Failure
		assert.That(t, s.Failures == 3 && end <= s.Deadline && s.Deadline-end <= 3 && s.Deadline < ttl,
			"ttl %v: the last failure ends at %v, the deadline is %v", ttl, end, s.Deadline)
		assert.That(t, s.Interval == ttl/2, "ttl %v: refreshed each %v", ttl, s.Interval)
		assert.That(t, s.Budget == min(11*time.Second, ttl/4) && s.Timeout == min(8*time.Second, ttl*2/15),
			"ttl %v: a request has %v, each send %v", ttl, s.Budget, s.Timeout)
	}
}

// TestEarlyRefreshesComeApart: a renewal comes as much earlier as Jitter says, at most a
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
			h.Jitter = func(most time.Duration) time.Duration {
				assert.Equal(t, most, 3*time.Second, "asked for")
				return c.early
			}
			assert.Is(t, h.run(t.Context()), ErrDeadline, "Run")
			assert.Equal(t, h.sent()[:3], []time.Duration{c.want, 2 * c.want, 3 * c.want}, "early by %v: attempts at", c.early)
			deadline := 2*c.want + 55*time.Second
			assert.Equal(t, h.gaveUp, deadline, "early by %v: gave up at", c.early)
			assert.Equal(t, h.failures[2:], []time.Duration{deadline}, "early by %v: the third failure", c.early)
		})
	}
}

// TestWarning: renewals of a long lease that fail, or hang, for 30 s are reported once, long before the first failure is
// complete. A short lease has its first failure earlier, and renewals that succeed again begin a new time.
func TestWarning(t *testing.T) {
	for name, attempt := range map[string]func(*harness, context.Context) error{"down": down, "hangs": hangs} {
		for ttl, warns := range map[time.Duration]bool{time.Minute: false, time.Hour: true} {
			bubble(t, attempt, func(t *testing.T, h *harness) {
				h.Schedule = ForTTL(ttl).Every(10 * time.Second)
				var reports []int
				count := h.Failed
				h.Failed = func(n int, gaveUp bool, err error) {
					reports = append(reports, n)
					assert.That(t, err != nil, "%s, ttl %v: no cause", name, ttl)
					count(n, gaveUp, err)
				}
				_ = h.run(t.Context())
				first, want := h.Interval+h.Failure, []int{1, 2, 3}
				if warns {
					first, want = h.Interval+MaxSilence, []int{0, 1, 2, 3}
				}
				assert.That(t, slices.Equal(reports, want) && h.failures[0] == first, "%s, ttl %v: %v at %v, want %v at %v", name, ttl, reports, h.failures, want, first)
			})
		}
	}
	bubble(t, func(h *harness, _ context.Context) error {
		if n := h.clock.Elapsed(); n < time.Minute || n > 2*time.Minute && n < 3*time.Minute {
			return errDown
		}
		return nil
	}, func(t *testing.T, h *harness) {
		h.Schedule = ForTTL(time.Hour).Every(10 * time.Second)
		ctx, cancel := context.WithTimeout(t.Context(), 4*time.Minute)
		defer cancel()
		_ = h.run(ctx)
		assert.Equal(t, len(h.failures), 2, "reports of two outages")
	})
}

// TestAnswerAtTheDeadline: an attempt whose answer comes just at the deadline has failed, as one without an answer has.
func TestAnswerAtTheDeadline(t *testing.T) {
	bubble(t, hangs, func(t *testing.T, h *harness) {
		s := &run{Refresher: h.Refresher}
		s.start(t.Context(), 0, h.Deadline, true)
		time.Sleep(h.Deadline)
		s.take(<-s.running.answer, h.Deadline)
		s.countFailures(h.clock.Elapsed())
		assert.Equal(t, h.gaveUp, h.Deadline, "gave up at")
	})
}

// TestPause: the pause between two tries is at most 10 s, and at most a fifth of the remaining
// time, so that the store is tried again and again until the deadline.
func TestPause(t *testing.T) {
	for n := 1; n < 100; n++ {
		for left := time.Duration(0); left < time.Hour; left = left*3/2 + time.Second {
			p := pause(n, left)
			assert.That(t, p <= 10*time.Second && p <= max(left/5, shortestPause) && p >= shortestPause,
				"after %d failures, %v left: %v", n, left, p)
			next := pause(n+1, left)
			assert.That(t, next >= p, "after %d failures, %v left: %v, and after one more %v", n, left, p, next)
		}
	}
}

func TestSchedule(t *testing.T) {
	third := ForTTL(time.Minute).Failure
	for name, c := range map[string]struct {
		attempt func(*harness, context.Context) error
		first   []time.Duration // of the attempts
		begins  float64         // when the first attempt of the last refresh begins
	}{
		"fails at once":           {down, seconds(30, 30.25, 30.75, 31.75, 33.75, 37.75), 30},
		"hangs":                   {hangs, seconds(30), 30},
		"hangs and heeds nothing": {func(*harness, context.Context) error { time.Sleep(time.Hour); return nil }, seconds(30), 30},
		"third answers": {func(h *harness, _ context.Context) error {
			if len(h.sent()) == 3 {
				return nil
			}
			return errDown
		}, seconds(30, 30.25, 30.75, 60.75, 61, 61.5), 60.75},
		"fails after 5 s": {func(*harness, context.Context) error {
			time.Sleep(5 * time.Second)
			return errDown
		}, seconds(30, 35.25, 40.75), 30},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, c.attempt, func(t *testing.T, h *harness) {
				assert.Is(t, h.run(t.Context()), ErrDeadline, "Run")
				begins := seconds(c.begins)[0]
				deadline := begins + 25*time.Second
				assert.Equal(t, h.clock.Elapsed(), deadline, "ended at")
				assert.Equal(t, h.sent()[:len(c.first)], c.first, "attempts at")
				assert.Equal(t, h.failures, []time.Duration{begins + third, begins + 2*third, deadline}, "failures at")
				assert.Equal(t, h.gaveUp, deadline, "gave up at")
				time.Sleep(2 * time.Hour) // for those that hang
			})
		})
	}
}

// TestProgressIsKept: the progress of an attempt that failed half-way is committed, and the
// next attempt continues from there. A requested renewal begins full.
func TestProgressIsKept(t *testing.T) {
	bubble(t, nil, func(t *testing.T, h *harness) {
		var mu sync.Mutex
		var begun []bool
		var committed atomic.Int32
		h.Attempt = func(_ context.Context, full bool) (Renewal, error) {
			mu.Lock()
			defer mu.Unlock()
			begun = append(begun, full)
			return Renewal{Commit: func() { committed.Add(1) }}, errDown
		}
		h.start(t.Context())
		time.Sleep(33 * time.Second)
		assert.Equal(t, committed.Load(), 4, "committed")
		_ = h.now(t)
		mu.Lock()
		assert.Equal(t, begun[:5], []bool{true, false, false, false, true}, "begun full; the last one was asked for")
		mu.Unlock()
		<-h.ended
	})
}

// TestFailedAttemptThatExtends: a failed attempt can find that an earlier one was applied. The
// lease lasts longer then, and the caller gets the failure.
func TestFailedAttemptThatExtends(t *testing.T) {
	bubble(t, nil, func(t *testing.T, h *harness) {
		const applied = 20 * time.Second
		h.Attempt = func(context.Context, bool) (Renewal, error) { return Renewal{Sent: applied}, errDown }
		h.start(t.Context())
		time.Sleep(25 * time.Second)
		assert.Is(t, h.now(t), errDown, "the caller")
		<-h.ended
		assert.Is(t, h.err, ErrDeadline)
		assert.Equal(t, h.clock.Elapsed(), applied+h.Deadline, "ended at")
	})
}

// TestAnswerTooLate: an answer that comes after the deadline renews nothing, and is not committed.
func TestAnswerTooLate(t *testing.T) {
	bubble(t, nil, func(t *testing.T, h *harness) {
		h.Attempt = func(context.Context, bool) (Renewal, error) {
			sent := h.clock.Elapsed()
			h.clock.Leap.Add(int64(time.Minute)) // suspended before the answer was read
			return Renewal{Sent: sent, Commit: func() { t.Error("committed") }}, nil
		}
		assert.Is(t, h.run(t.Context()), ErrDeadline, "Run")
	})
}

// TestSuspend: a deadline that passes in a suspend is noticed within half a second of waking. A process that
// didn't run hasn't failed.
func TestSuspend(t *testing.T) {
	bubble(t, up, func(t *testing.T, h *harness) {
		woken := time.AfterFunc(10*time.Second, func() { h.clock.Leap.Add(int64(time.Hour)) })
		defer woken.Stop()
		start := time.Now()
		assert.Is(t, h.run(t.Context()), ErrDeadline, "Run")
		assert.Equal(t, h.sent(), nil, "attempts at")
		assert.Equal(t, h.failures, nil, "failures at")
		late := time.Since(start) - 10*time.Second
		assert.That(t, late <= 500*time.Millisecond, "noticed %v after waking", late)
	})
}

// TestLastAnswerCounts: the answer of an attempt that is under way when Run is to end still extends the lease.
func TestLastAnswerCounts(t *testing.T) {
	bubble(t, func(*harness, context.Context) error { time.Sleep(3 * time.Second); return nil }, func(t *testing.T, h *harness) {
		var deadline time.Duration
		h.Extended = func(d time.Duration) { deadline = d }
		ctx, cancel := context.WithTimeout(t.Context(), 31*time.Second)
		defer cancel()
		assert.Is(t, h.run(ctx), context.DeadlineExceeded)
		assert.Equal(t, deadline, 30*time.Second+h.Deadline, "deadline")
	})
}

// TestEndWaitsForTheAttempt: when Run has returned, no request is under way that could undo a later one. A
// request that hangs is waited for no longer than its timeout. A loss that it finds is returned.
func TestEndWaitsForTheAttempt(t *testing.T) {
	for takes, finds := range map[time.Duration]error{3 * time.Second: nil, 4 * time.Second: Stop(errDown), time.Hour: nil} {
		bubble(t, func(*harness, context.Context) error { time.Sleep(takes); return finds }, func(t *testing.T, h *harness) {
			ctx, cancel := context.WithCancel(t.Context())
			time.AfterFunc(31*time.Second, cancel)
			want := context.Canceled
			if finds != nil {
				want = errDown
			}
			assert.Is(t, h.run(ctx), want, "Run")
			assert.Equal(t, h.clock.Elapsed(), min(30*time.Second+takes, 39*time.Second), "ended at")
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
		h.start(t.Context())
		for range 5 {
			time.Sleep(time.Second)
			assert.Is(t, h.now(t), errDown, "Now")
		}
		fail.Store(false)
		time.Sleep(time.Second)
		assert.Is(t, h.now(t), nil, "Now")
		assert.Equal(t, h.sent(), seconds(1, 2, 3, 4, 5, 6), "attempts at")
		fail.Store(true)
		<-h.ended
		assert.Equal(t, h.clock.Elapsed(), 61*time.Second, "ended at")
		assert.Equal(t, h.gaveUp, 61*time.Second, "gave up at")
		assert.Is(t, h.now(t), ErrDeadline, "Now after the end")
	})
}

// TestNowThatHangsIsNoFailure: an attempt that only Now has asked for is no failure, however long it lasts.
func TestNowThatHangsIsNoFailure(t *testing.T) {
	bubble(t, hangs, func(t *testing.T, h *harness) {
		h.start(t.Context())
		time.Sleep(5 * time.Second)
		err := h.now(t)
		assert.That(t, errors.Is(err, ErrDeadline) && len(h.failures) == 0, "Now: %v, failures at %v", err, h.failures)
		<-h.ended
	})
}

// TestNowIsAfterItWasAskedFor: an attempt under way might have looked before the call, so it doesn't count.
// Callers share the next attempt. If there is none, because the lock is lost, they get an error.
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
			h.start(ctx)
			time.Sleep(31 * time.Second)
			var want error
			at, attempts := 34*time.Second, 2
			if lost {
				want, at, attempts = errDown, 32*time.Second, 1
			}
			var all sync.WaitGroup
			for range 3 {
				all.Go(func() {
					assert.Is(t, h.now(t), want, "Now")
					assert.Equal(t, h.clock.Elapsed(), at, "Now returns at")
				})
			}
			all.Wait()
			cancel()
			<-h.ended
			assert.Equal(t, len(h.sent()), attempts, "attempts")
		})
	}
}
