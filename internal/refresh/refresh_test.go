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

	"github.com/repolock/repolock/internal/clock"
)

// bubble is a clock that runs with a synctest bubble's time, and can leap as the
// time since boot does over a suspend.
type bubble struct {
	start time.Time
	leap  *atomic.Int64
}

func newBubble() bubble { return bubble{time.Now(), new(atomic.Int64)} }

func (b bubble) Now() time.Time                         { return time.Now() }
func (b bubble) Elapsed() time.Duration                 { return time.Since(b.start) + time.Duration(b.leap.Load()) }
func (b bubble) After(d time.Duration) <-chan time.Time { return time.After(d) }

var errDown = errors.New("down")

// harness runs a Refresher of a 60 s lease and notes when attempts start.
type harness struct {
	*Refresher
	clock    bubble
	mu       sync.Mutex
	attempts []time.Duration
	gaveUp   time.Duration
}

func newHarness(attempt func(h *harness, ctx context.Context) error) *harness {
	h := &harness{clock: newBubble()}
	h.Refresher = New(Refresher{
		Schedule: ForTTL(time.Minute), Clock: h.clock,
		Attempt: func(ctx context.Context) (Renewal, error) {
			sent := h.clock.Elapsed()
			h.mu.Lock()
			h.attempts = append(h.attempts, sent)
			h.mu.Unlock()
			return Renewal{Sent: sent}, attempt(h, ctx)
		},
		Failed: func(_ int, gaveUp bool, _ error) {
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

// TestThreeFailuresEndBeforeTheDeadline, for every ttl and however long the
// attempts take.
func TestThreeFailuresEndBeforeTheDeadline(t *testing.T) {
	for _, ttl := range []time.Duration{10 * time.Second, 17 * time.Second, time.Minute, time.Hour, 24 * time.Hour} {
		s := ForTTL(ttl)
		if end := s.Interval + time.Duration(s.Failures-1)*s.Retry + s.Timeout; end >= s.Deadline || s.Deadline >= ttl {
			t.Errorf("ttl %v: the last attempt ends at %v, the deadline is %v", ttl, end, s.Deadline)
		}
		if s.Timeout > s.Retry {
			t.Errorf("ttl %v: an attempt is still under way when the next is due", ttl)
		}
		if s.Interval != ttl/2 {
			t.Errorf("ttl %v: refreshed each %v", ttl, s.Interval)
		}
	}
}

func TestSchedule(t *testing.T) {
	for name, c := range map[string]struct {
		attempt          func(*harness, context.Context) error
		attempts         []time.Duration
		gaveUp, deadline time.Duration
	}{
		"fails at once": {
			func(*harness, context.Context) error { return errDown },
			seconds(30, 38, 46), 46 * time.Second, 55 * time.Second,
		},
		"hangs": {
			func(_ *harness, ctx context.Context) error { <-ctx.Done(); return ctx.Err() },
			seconds(30, 38, 46), 54 * time.Second, 55 * time.Second,
		},
		"hangs and heeds nothing": {
			func(*harness, context.Context) error { time.Sleep(time.Hour); return nil },
			seconds(30, 38, 46), 54 * time.Second, 55 * time.Second,
		},
		"third answers": {
			func(h *harness, _ context.Context) error {
				if len(h.sent()) == 3 {
					return nil
				}
				return errDown
			},
			seconds(30, 38, 46, 76, 84, 92), 92 * time.Second, 101 * time.Second,
		},
		"fails after 5 s": {
			func(*harness, context.Context) error { time.Sleep(5 * time.Second); return errDown },
			seconds(30, 38, 46), 51 * time.Second, 55 * time.Second,
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
				if got := h.sent(); !slices.Equal(got, c.attempts) {
					t.Errorf("attempts at %v, want %v", got, c.attempts)
				}
				if h.gaveUp != c.gaveUp {
					t.Errorf("gave up at %v, want %v", h.gaveUp, c.gaveUp)
				}
				time.Sleep(2 * time.Hour) // for those that hang
			})
		})
	}
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
		h.Attempt = func(context.Context) (Renewal, error) {
			sent := h.clock.Elapsed()
			h.clock.leap.Add(int64(time.Minute)) // suspended before the answer was read
			return Renewal{Sent: sent, Commit: func() { t.Error("committed") }}, nil
		}
		if err := h.Run(t.Context()); !errors.Is(err, ErrDeadline) {
			t.Errorf("Run: %v", err)
		}
	})
}

// TestSuspend is noticed within half a second of waking.
func TestSuspend(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(func(*harness, context.Context) error { return nil })
		woken := time.AfterFunc(10*time.Second, func() { h.clock.leap.Add(int64(time.Hour)) })
		defer woken.Stop()
		start := time.Now()
		if err := h.Run(t.Context()); !errors.Is(err, ErrDeadline) || len(h.sent()) > 0 {
			t.Errorf("Run: %v, attempts %v", err, h.sent())
		}
		if late := time.Since(start) - 10*time.Second; late > 500*time.Millisecond {
			t.Errorf("noticed %v after waking", late)
		}
	})
}

// TestEndWaitsForTheAttempt: when Run has returned no request is under way that
// could undo what comes next; one that hangs is waited for no longer than its
// timeout.
func TestEndWaitsForTheAttempt(t *testing.T) {
	for _, takes := range []time.Duration{3 * time.Second, time.Hour} {
		synctest.Test(t, func(t *testing.T) {
			h := newHarness(func(*harness, context.Context) error { time.Sleep(takes); return nil })
			ctx, cancel := context.WithCancel(t.Context())
			time.AfterFunc(31*time.Second, cancel)
			err := h.Run(ctx)
			want := min(30*time.Second+takes, 38*time.Second)
			if !errors.Is(err, context.Canceled) || h.clock.Elapsed() != want {
				t.Errorf("Run: %v at %v, want %v", err, h.clock.Elapsed(), want)
			}
			time.Sleep(takes)
		})
	}
}

// TestNow renews at once; its failures aren't those that make the refresher give
// up.
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
		fail.Store(true)
		<-ended
		if got := h.clock.Elapsed(); got != 61*time.Second || h.gaveUp != 52*time.Second {
			t.Errorf("gave up at %v, ended at %v", h.gaveUp, got)
		}
		if err := h.Refresher.Now(t.Context(), ended); !errors.Is(err, ErrDeadline) {
			t.Errorf("Now after the end: %v", err)
		}
	})
}

// TestNowIsAfterItWasAskedFor: an attempt that is under way may have looked before, and
// tells nothing of now. Those who ask meanwhile share the next one; if there is none,
// because the lock is lost, they are told.
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

var _ clock.Clock = bubble{}
