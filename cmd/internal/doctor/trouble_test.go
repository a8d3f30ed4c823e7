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
	"github.com/repolock/repolock/internal/test/hookstore"
	"github.com/repolock/repolock/store"
	"github.com/repolock/repolock/store/mem"
)

var (
	errReset = errors.New("connection reset")
	errStop  = errors.New("stopped")
)

// TestCancelled: wherever it is interrupted, nothing is left, and it says why it
// ended. Requests are counted without the overwriting, which goes on for as long as the
// listings take. Then each examination sends at least 645; more only if racers try again.
func TestCancelled(t *testing.T) {
	for _, at := range []int64{1, 2, 4, 7, 20, 100, 300, 600, 640, 645} {
		s, m := tapped()
		ctx, cancel := context.WithCancelCause(t.Context())
		var n atomic.Int64
		s.Before(func(_ context.Context, r hookstore.Request) error {
			if overwriting := r.Op == "put" && strings.Contains(r.Key, "/list/steady-"); !overwriting && n.Add(1) == at {
				cancel(errStop)
			}
			return nil
		})
		r, err := doctor.Run(ctx, s, doctor.Options{Prefix: prefix, Locks: locks})
		if !errors.Is(err, errStop) {
			t.Errorf("at request %d: %v", at, err)
		}
		if len(r.Checks) != 18 || len(r.Left) > 0 {
			t.Errorf("at request %d: %+v", at, r)
		}
		fitness(t, r, doctor.NotKnown)
		empty(t, m)
		cancel(nil)
	}
}

// TestCancelledWhileItFails: an examination can be cancelled between two tries.
func TestCancelledWhileItFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _ := tapped()
		s.Before(func(context.Context, hookstore.Request) error { return errReset })
		ctx, cancel := context.WithCancelCause(t.Context())
		time.AfterFunc(50*time.Millisecond, func() { cancel(errStop) })
		_, err := doctor.Run(ctx, s, doctor.Options{Prefix: prefix, Locks: locks, Clock: bubble{start: time.Now()}})
		if !errors.Is(err, errStop) {
			t.Errorf("error: %v", err)
		}
	})
}

// TestUnreachable: doctor reports an unreachable store within 15 s, and has written nothing.
func TestUnreachable(t *testing.T) {
	for name, err := range map[string]error{
		"reset": errReset, "no bucket": store.ErrNotFound, "configuration": store.ErrConfig, "hangs": nil,
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, _ := tapped()
				end := make(chan struct{})
				defer close(end)
				s.Before(func(context.Context, hookstore.Request) error {
					if err == nil {
						<-end // a system call that can't be interrupted
					}
					return err
				})
				start := time.Now()
				r, got := doctor.Run(t.Context(), s, doctor.Options{Prefix: prefix, Locks: locks, Clock: bubble{start: start}})
				if got == nil || err != nil && !errors.Is(got, err) {
					t.Errorf("error: %v", got)
				}
				if took := time.Since(start); took > 15*time.Second {
					t.Errorf("took %v", took)
				}
				if _, by := s.Count(); by["put"] > 0 || len(r.Left) > 0 {
					t.Errorf("%v, left %v", by, r.Left)
				}
				fitness(t, r, doctor.NotKnown)
			})
		})
	}
}

// TestOutage: after an outage in the middle doctor names the objects that are left, and ends
// in time.
func TestOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, m := tapped()
		s.Before(func(_ context.Context, r hookstore.Request) error {
			if r.N > 100 {
				return errReset
			}
			return nil
		})
		start := time.Now()
		r, err := doctor.Run(t.Context(), s, doctor.Options{Prefix: prefix, Locks: locks, Clock: bubble{start: start}})
		if !errors.Is(err, errReset) {
			t.Errorf("error: %v", err)
		}
		if took := time.Since(start); took > 45*time.Second {
			t.Errorf("took %v", took)
		}
		left := all(t, m)
		if len(left) == 0 || len(r.Left) < len(left) {
			t.Errorf("%d are left, %d are named", len(left), len(r.Left))
		}
		fitness(t, r, doctor.NotKnown)
		if _, found := r.Check(doctor.ClockOffset); !found {
			t.Error("checks are missing")
		}
	})
}

// TestSlowCleanup: a store that deletes slowly is cleaned up to the end, and the progress
// shows it.
func TestSlowCleanup(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, m := tapped()
		var said []string
		cleaning := false
		s.Before(func(_ context.Context, r hookstore.Request) error {
			if r.Op == "delete" {
				time.Sleep(3 * time.Second)
			}
			return nil
		})
		start := time.Now()
		r := run(t, s, doctor.Options{Clock: bubble{start: start}, Progress: func(what string) {
			if cleaning = cleaning || what == "cleaning up"; cleaning {
				said = append(said, what)
			}
		}})
		if len(r.Left) > 0 || len(said) < 3 || !strings.HasPrefix(said[len(said)-1], "cleaning up: ") {
			t.Errorf("%d objects are left; the progress was %q", len(r.Left), said)
		}
		empty(t, m)
	})
}

// TestStuckCleanup: a cleanup that no longer advances ends. Objects that are left although
// they could be deleted are an error.
func TestStuckCleanup(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, m := tapped()
		var deletions atomic.Int64
		s.Before(func(ctx context.Context, r hookstore.Request) error {
			if r.Op == "delete" && deletions.Add(1) > 50 {
				<-ctx.Done()
				return ctx.Err()
			}
			return nil
		})
		start := time.Now()
		r, err := doctor.Run(t.Context(), s, doctor.Options{Prefix: prefix, Locks: locks, Clock: bubble{start: start}})
		if left := all(t, m); err == nil || len(left) == 0 || len(r.Left) < len(left) || !strings.Contains(err.Error(), r.Prefix) {
			t.Errorf("%d are left, %d are named: %v", len(left), len(r.Left), err)
		}
		if took := time.Since(start); took > time.Minute {
			t.Errorf("took %v", took)
		}
	})
}

// TestFaults: failures of the store now and then, before or after it has applied a request,
// don't make it unfit, and no object is left.
func TestFaults(t *testing.T) {
	for _, every := range []int64{7, 13, 50} {
		synctest.Test(t, func(t *testing.T) {
			s, m := tapped()
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
			r := run(t, s, doctor.Options{Clock: bubble{start: time.Now()}})
			expect(t, r, nil)
			fitness(t, r, doctor.Fit)
			empty(t, m)
		})
	}
}

// TestLatePut: an object whose put is applied after doctor gave it up is deleted too.
func TestLatePut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := mem.New(mem.Options{})
		s := &hookstore.Store{Store: m}
		var held atomic.Bool
		var late atomic.Pointer[hookstore.Request]
		s.Before(func(_ context.Context, r hookstore.Request) error {
			if strings.Contains(r.Key, "if-none-match/") && held.CompareAndSwap(false, true) {
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
		r := run(t, s, doctor.Options{Clock: bubble{start: time.Now()}})
		if !held.Load() || late.Load() != nil {
			t.Fatal("nothing was late")
		}
		fitness(t, r, doctor.Fit)
		empty(t, m)
	})
}

// dated returns its time in whole seconds, as HTTP's Date does.
type dated struct{ *mem.Store }

func (s dated) List(ctx context.Context, prefix, cursor string) (store.Page, error) {
	page, err := s.Store.List(ctx, prefix, cursor)
	page.Now = page.Now.Truncate(time.Second)
	return page, err
}

// TestClockOffset: doctor measures how far this machine's clock is ahead, to within the time
// of a request, even if the store's time is in whole seconds.
func TestClockOffset(t *testing.T) {
	const away = 100 * time.Millisecond // each way
	for name, test := range map[string]struct {
		make        func() store.Store
		source      string
		uncertainty float64
	}{
		"exact":            {func() store.Store { return mem.New(mem.Options{}) }, "listing", 0.126},
		"dated":            {func() store.Store { return dated{mem.New(mem.Options{Precision: time.Second})} }, "listing", 0.23},
		"mod time":         {func() store.Store { return mem.New(mem.Options{NoTime: true}) }, "mod_time", 0.126},
		"rounded mod time": {func() store.Store { return mem.New(mem.Options{NoTime: true, Precision: time.Second}) }, "mod_time", 0.6},
	} {
		for _, skew := range []time.Duration{0, time.Hour, -time.Hour, 3 * time.Second, -90 * 24 * time.Hour} {
			synctest.Test(t, func(t *testing.T) {
				time.Sleep(900 * time.Millisecond) // the clocks aren't at a full second
				s := &hookstore.Store{Store: test.make()}
				s.Before(func(context.Context, hookstore.Request) error { time.Sleep(away); return nil })
				s.After(func(_ context.Context, _ hookstore.Request, err error) error { time.Sleep(away); return err })
				r := run(t, s, doctor.Options{Clock: bubble{time.Now(), skew}})
				if r.Clock == nil {
					t.Fatal("no offset")
				}
				off := r.Clock.Seconds - skew.Seconds()
				if max(off, -off) > r.Clock.Uncertainty+1e-6 || r.Clock.Uncertainty > test.uncertainty {
					t.Errorf("%s, %v: %+v", name, skew, *r.Clock)
				}
				if r.Clock.Source != test.source {
					t.Errorf("%s: from %s", name, r.Clock.Source)
				}
				want := map[string]doctor.Result{doctor.ClockOffset: doctor.OK}
				if skew != 0 {
					want[doctor.ClockOffset] = doctor.Warn
				}
				expect(t, r, want)
				fitness(t, r, doctor.Fit)
			})
		}
	}
}

// TestClocksDisagree: the gateways of one store disagree, or this machine's clock was set.
func TestClocksDisagree(t *testing.T) {
	var n atomic.Int64
	m := mem.New(mem.Options{Now: func() time.Time { return time.Now().Add(time.Duration(n.Add(1)%2) * time.Minute) }})
	r := run(t, m, doctor.Options{})
	expect(t, r, map[string]doctor.Result{doctor.ClockOffset: doctor.Warn, doctor.OneClock: check(t, r, doctor.OneClock).Result})
	if r.Clock != nil {
		t.Errorf("%+v", r.Clock)
	}
	fitness(t, r, doctor.Fit)
}

// TestTakesSeconds on a store that is 20 ms away.
func TestTakesSeconds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _ := tapped()
		var under, most atomic.Int64
		s.Before(func(context.Context, hookstore.Request) error {
			n := under.Add(1)
			for m := most.Load(); n > m && !most.CompareAndSwap(m, n); m = most.Load() {
			}
			time.Sleep(20 * time.Millisecond)
			under.Add(-1)
			return nil
		})
		start := time.Now()
		r := run(t, s, doctor.Options{Clock: bubble{start: start}})
		if took := time.Since(start); took > 20*time.Second {
			t.Errorf("took %v", took)
		}
		if most.Load() > 9 { // with the one that overwrites
			t.Errorf("%d requests at once", most.Load())
		}
		for _, l := range r.Latency {
			if l.MedianMS != 20 || l.P99MS != 20 {
				t.Errorf("%+v", l)
			}
		}
	})
}
