package doctor_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/repolock/repolock/cmd/internal/doctor"
	"github.com/repolock/repolock/internal/fault"
	"github.com/repolock/repolock/internal/test/assert"
	"github.com/repolock/repolock/internal/test/hookstore"
	"github.com/repolock/repolock/internal/test/leapclock"
	"github.com/repolock/repolock/store"
	"github.com/repolock/repolock/store/memory"
)

var (
	errReset = errors.New("connection reset")
	errStop  = errors.New("stopped")
)

// inBubble runs a test in simulated time, on a good store behind hooks. The options have its clock.
func inBubble(t *testing.T, test func(t *testing.T, s *hookstore.Store, m *memory.Store, opts doctor.Options)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s, m := tapped()
		test(t, s, m, doctor.Options{Clock: leapclock.New()})
	})
}

// TestCancelled: an interruption at any request leaves nothing, and is the error. The count leaves out
// the overwriting, which goes on during the listings. Each examination sends at least 645 other requests; more only
// if racers try again.
func TestCancelled(t *testing.T) {
	for _, at := range []int64{1, 2, 4, 7, 20, 100, 300, 600, 640, 645} {
		inBubble(t, func(t *testing.T, s *hookstore.Store, m *memory.Store, opts doctor.Options) {
			ctx, cancel := context.WithCancelCause(t.Context())
			var n atomic.Int64
			s.Before(func(_ context.Context, r hookstore.Request) error {
				if overwriting := r.Op == "put" && strings.Contains(r.Key, "/list/steady-"); !overwriting && n.Add(1) == at {
					cancel(errStop)
				}
				dawdle()
				return nil
			})
			r, err := examine(ctx, s, opts)
			assert.Is(t, err, errStop, "at request %d", at)
			assert.That(t, len(r.Checks) == 18 && len(r.Left) == 0, "at request %d: %+v", at, r)
			fitness(t, r, doctor.NotKnown)
			reach, _ := r.Check(doctor.Reachable)
			assert.That(t, at > 1 || reach.Result == doctor.Unknown, "at request %d: %+v", at, reach)
			clean(t, m, r)
			cancel(nil)
		})
	}
}

// TestUnreachable: doctor reports an unreachable store within 15 s, and has written nothing.
func TestUnreachable(t *testing.T) {
	for name, err := range map[string]error{
		"reset": errReset, "no bucket": store.ErrNotFound, "configuration": store.ErrConfig, "hangs": nil,
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, s *hookstore.Store, _ *memory.Store, opts doctor.Options) {
				end := make(chan struct{})
				defer close(end)
				s.Before(func(context.Context, hookstore.Request) error {
					if err == nil {
						<-end // a system call that can't be interrupted
					}
					return err
				})
				r, got := examine(t.Context(), s, opts)
				assert.That(t, got != nil && (err == nil || errors.Is(got, err)), "error: %v", got)
				took := opts.Clock.Elapsed()
				assert.That(t, took <= 15*time.Second, "took %v", took)
				_, by := s.Count()
				assert.That(t, by["put"] == 0 && len(r.Left) == 0, "%v, left %v", by, r.Left)
				fitness(t, r, doctor.NotKnown)
			})
		})
	}
}

// TestOutage: after an outage in the middle doctor names the remaining objects, and ends in time.
func TestOutage(t *testing.T) {
	inBubble(t, func(t *testing.T, s *hookstore.Store, m *memory.Store, opts doctor.Options) {
		s.Before(func(_ context.Context, r hookstore.Request) error {
			if r.N > 100 {
				return errReset
			}
			return nil
		})
		r, err := examine(t.Context(), s, opts)
		assert.Is(t, err, errReset)
		took := opts.Clock.Elapsed()
		assert.That(t, took <= 45*time.Second, "took %v", took)
		keys := left(t, m, r)
		assert.That(t, len(keys) != 0, "nothing is left")
		fitness(t, r, doctor.NotKnown)
		_, found := r.Check(doctor.ClockOffset)
		assert.That(t, found, "checks are missing")
	})
}

// TestSlowCleanup: a slow cleanup goes on to the end, and shows its progress.
func TestSlowCleanup(t *testing.T) {
	inBubble(t, func(t *testing.T, s *hookstore.Store, m *memory.Store, opts doctor.Options) {
		var said []string
		cleaning := false
		s.Before(func(_ context.Context, r hookstore.Request) error {
			if r.Op == "delete" {
				time.Sleep(3 * time.Second)
			}
			return nil
		})
		opts.Progress = func(what string) {
			if cleaning = cleaning || what == "cleaning up"; cleaning {
				said = append(said, what)
			}
		}
		r := run(t, s, opts)
		assert.That(t, len(r.Left) == 0 && len(said) >= 3 && strings.HasPrefix(said[len(said)-1], "cleaning up: "),
			"%d objects are left; the progress was %q", len(r.Left), said)
		clean(t, m, r)
	})
}

// TestStuckCleanup: a cleanup without progress ends. Remaining objects that doctor is allowed to delete are an error.
func TestStuckCleanup(t *testing.T) {
	inBubble(t, func(t *testing.T, s *hookstore.Store, m *memory.Store, opts doctor.Options) {
		var deletions atomic.Int64
		s.Before(func(ctx context.Context, r hookstore.Request) error {
			if r.Op == "delete" && deletions.Add(1) > 50 {
				<-ctx.Done()
				return ctx.Err()
			}
			return nil
		})
		r, err := examine(t.Context(), s, opts)
		keys := left(t, m, r)
		assert.That(t, err != nil && len(keys) != 0 && strings.Contains(err.Error(), r.Prefix), "%d are left: %v", len(keys), err)
		took := opts.Clock.Elapsed()
		assert.That(t, took <= time.Minute, "took %v", took)
	})
}

// TestFaults: occasional failures of the store, before or after it has applied a request,
// don't make it unfit, and leave no object.
func TestFaults(t *testing.T) {
	for _, every := range []int64{7, 13, 50} {
		inBubble(t, func(t *testing.T, s *hookstore.Store, m *memory.Store, opts doctor.Options) {
			s.Before(func(_ context.Context, r hookstore.Request) error {
				if r.N%every == 0 && r.N/every%2 == 0 {
					return errReset
				}
				return nil
			})
			s.After(func(_ context.Context, r hookstore.Request, err error) error {
				if r.N%every == 0 && r.N/every%2 == 1 {
					return errReset
				}
				return err
			})
			r := run(t, s, opts)
			expect(t, r, nil)
			fitness(t, r, doctor.Fit)
			clean(t, m, r)
		})
	}
}

// TestLatePut: a put that the store applies after doctor has given it up is deleted, too.
func TestLatePut(t *testing.T) {
	inBubble(t, func(t *testing.T, s *hookstore.Store, m *memory.Store, opts doctor.Options) {
		var held atomic.Bool
		var late atomic.Pointer[hookstore.Request]
		s.Before(func(_ context.Context, r hookstore.Request) error {
			if strings.HasSuffix(r.Key, "/if-none-match-1") && held.CompareAndSwap(false, true) {
				late.Store(&r)
				return errReset
			}
			return nil
		})
		s.After(func(ctx context.Context, r hookstore.Request, err error) error {
			// After all known keys were deleted.
			if l := late.Load(); l != nil && r.Op == "delete" && r.Key == l.Key && late.CompareAndSwap(l, nil) {
				_, perr := m.Put(ctx, l.Key, l.Body, store.PutOptions{})
				return perr
			}
			return err
		})
		r := run(t, s, opts)
		assert.Need(t, held.Load() && late.Load() == nil, "nothing was late")
		fitness(t, r, doctor.Fit)
		clean(t, m, r)
	})
}

// TestClockOffset: doctor measures how far this machine's clock is ahead, to within the time
// of a request, even if the store's time is in whole seconds.
func TestClockOffset(t *testing.T) {
	const away = 100 * time.Millisecond                                               // each way
	inSeconds := func(page *store.Page) { page.Now = page.Now.Truncate(time.Second) } // as HTTP's Date
	for name, test := range map[string]struct {
		make        func() store.Store
		source      string
		uncertainty float64
	}{
		"exact": {func() store.Store { return memory.New(memory.Options{}) }, "listing", 0.126},
		"dated": {func() store.Store {
			return &flawed{Store: memory.New(memory.Options{Precision: time.Second}), shows: inSeconds}
		}, "listing", 0.23},
		"mod time":         {func() store.Store { return memory.New(memory.Options{NoTime: true}) }, "mod_time", 0.126},
		"rounded mod time": {func() store.Store { return memory.New(memory.Options{NoTime: true, Precision: time.Second}) }, "mod_time", 0.6},
	} {
		for _, skew := range []time.Duration{0, time.Hour, -time.Hour, 3 * time.Second, -90 * 24 * time.Hour} {
			synctest.Test(t, func(t *testing.T) {
				time.Sleep(900 * time.Millisecond) // the clocks aren't at a full second
				s := &hookstore.Store{Store: test.make()}
				s.Before(func(context.Context, hookstore.Request) error { time.Sleep(away); return nil })
				s.After(func(_ context.Context, _ hookstore.Request, err error) error { time.Sleep(away); return err })
				c := leapclock.New()
				c.Step.Store(int64(skew))
				r := run(t, s, doctor.Options{Clock: c})
				assert.Need(t, r.Clock != nil, "no offset")
				off := r.Clock.Seconds - skew.Seconds()
				assert.That(t, max(off, -off) <= r.Clock.Uncertainty+1e-6 && r.Clock.Uncertainty <= test.uncertainty,
					"%s, %v: %+v", name, skew, *r.Clock)
				assert.That(t, r.Clock.Source == test.source, "%s: from %s", name, r.Clock.Source)
				want := map[string]doctor.Result{doctor.ClockOffset: doctor.OK}
				if skew.Abs() > time.Minute {
					word := map[bool]string{true: " ahead of the store", false: " behind the store"}[skew > 0]
					assert.That(t, strings.Contains(check(t, r, doctor.ClockOffset).Detail, word), "%v: %+v", skew, check(t, r, doctor.ClockOffset))
				}
				if skew != 0 {
					want[doctor.ClockOffset] = doctor.Warn
				}
				expect(t, r, want)
				fitness(t, r, doctor.Fit)
			})
		}
	}
}

// TestClocksDisagree: a store whose own times contradict each other is a warning, and has no offset.
func TestClocksDisagree(t *testing.T) {
	var n atomic.Int64
	m := memory.New(memory.Options{Now: func() time.Time { return time.Now().Add(time.Duration(n.Add(1)%2) * time.Minute) }})
	r := run(t, m, doctor.Options{})
	expect(t, r, map[string]doctor.Result{doctor.ClockOffset: doctor.Warn, doctor.OneClock: check(t, r, doctor.OneClock).Result})
	assert.That(t, r.Clock == nil, "%+v", r.Clock)
	fitness(t, r, doctor.Fit)
}

// TestTakesSeconds: with round trips of 20 ms, doctor takes less than 20 s and sends at most 9 requests at once.
func TestTakesSeconds(t *testing.T) {
	inBubble(t, func(t *testing.T, s *hookstore.Store, _ *memory.Store, opts doctor.Options) {
		var under, most atomic.Int64
		s.Before(func(context.Context, hookstore.Request) error {
			n := under.Add(1)
			for m := most.Load(); n > m && !most.CompareAndSwap(m, n); m = most.Load() {
			}
			time.Sleep(20 * time.Millisecond)
			under.Add(-1)
			return nil
		})
		r := run(t, s, opts)
		took := opts.Clock.Elapsed()
		assert.That(t, took <= 20*time.Second, "took %v", took)
		if most.Load() > 9 { // with the one that overwrites
			t.Errorf("%d requests at once", most.Load())
		}
		for _, l := range r.Latency {
			assert.That(t, l.MedianMS == 20 && l.P99MS == 20, "%+v", l)
		}
	})
}

// TestLastWords: doctor reports the reason of a store that returns one just after the request's end. It doesn't wait
// longer for a silent store.
func TestLastWords(t *testing.T) {
	words := errors.New("the disk is asleep")
	for late, says := range map[time.Duration]bool{100 * time.Millisecond: true, time.Hour: false} {
		inBubble(t, func(t *testing.T, s *hookstore.Store, _ *memory.Store, opts doctor.Options) {
			s.Before(func(ctx context.Context, r hookstore.Request) error {
				<-ctx.Done()
				time.Sleep(late)
				return &store.Error{Op: r.Op, Key: r.Key, Err: fault.Join(words, ctx.Err())}
			})
			_, err := examine(t.Context(), s, opts)
			assert.That(t, errors.Is(err, words) == says && errors.Is(err, context.DeadlineExceeded) && strings.Contains(err.Error(), "no answer within"),
				"%v late: %v", late, err)
			took := opts.Clock.Elapsed()
			assert.That(t, took <= 30*time.Second, "%v late: took %v", late, took)
			time.Sleep(2 * time.Hour) // a later message is lost
		})
	}
}

// TestListingsEnd: a store whose listings have no end is unfit, and doctor stops.
func TestListingsEnd(t *testing.T) {
	for _, how := range hookstore.Ways {
		t.Run(how, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &hookstore.Unending{Store: memory.New(memory.Options{}), How: how, Most: 20_000}
				r, err := examine(t.Context(), s, doctor.Options{Clock: leapclock.New()})
				assert.Is(t, err, store.ErrListing, "after %d", s.Pages())
				fitness(t, r, doctor.Unfit)
			})
		})
	}
}

// TestCredentials: if the store refuses the credentials, the verdict doesn't speak of permissions.
func TestCredentials(t *testing.T) {
	inBubble(t, func(t *testing.T, s *hookstore.Store, _ *memory.Store, opts doctor.Options) {
		s.Before(func(_ context.Context, r hookstore.Request) error {
			return &store.Error{Op: r.Op, Key: r.Key, Err: store.ErrCredentials}
		})
		r := run(t, s, opts)
		fitness(t, r, doctor.LacksPermission)
		assert.That(t, r.Verdict.Credentials && strings.Contains(r.Verdict.Summary, "refuses the credentials") && !strings.Contains(r.Verdict.Summary, "permissions"), "%+v", r.Verdict)
	})
}

// TestFullStore: a check whose request fails was tried, and has the reason.
func TestFullStore(t *testing.T) {
	inBubble(t, func(t *testing.T, s *hookstore.Store, _ *memory.Store, opts doctor.Options) {
		s.Before(func(_ context.Context, r hookstore.Request) error {
			if r.Op == "put" {
				return &store.Error{Op: r.Op, Key: r.Key, Err: store.ErrFull}
			}
			return nil
		})
		r, err := examine(t.Context(), s, opts)
		assert.Is(t, err, store.ErrFull)
		write, _ := r.Check(doctor.Write)
		read, _ := r.Check(doctor.Read)
		assert.That(t, write.Result == doctor.Unknown && strings.HasPrefix(write.Detail, "tried, ") && strings.Contains(write.Detail, "no space left"), "%+v", write)
		assert.Equal(t, read.Detail, "not tried")
		fitness(t, r, doctor.NotKnown)
	})
}
