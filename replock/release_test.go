package replock

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/repolock/repolock/internal/test/hookstore"
	"github.com/repolock/repolock/store/mem"
)

// replaces makes another client take the exclusive lock while its holder releases it.
func (w *world) replaces(ctx context.Context, k *Lock, by *machine) *Lock {
	_ = w.mem.Delete(ctx, k.Key()) // or the release waits for it
	other, err := by.Exclusive(w.t.Context(), "prune")
	if err != nil {
		w.t.Error(err)
	}
	return other
}

// lasts checks that the other client's lock stays held.
func (w *world) lasts(other *Lock) {
	w.t.Helper()
	time.Sleep(DefaultTTL)
	if other == nil || !alive(other) {
		w.t.Error("the next one has lost its lock")
	} else {
		other.Release(w.t.Context())
	}
}

// TestRepeatedReleaseLeavesTheNextHolder: a release whose delete, or emptying put, was applied and
// answered with a 500 leaves the next holder alone when it is repeated. So does one whose delete, which
// was given up, is refused only after that put.
func TestRepeatedReleaseLeavesTheNextHolder(t *testing.T) {
	const late = "put, and a delete that comes back late"
	for _, op := range []string{"delete", "put", late} {
		sub(t, op, mem.Options{}, func(t *testing.T, w *world) {
			a, b := w.machine(), w.machine()
			k := a.takes(t, Exclusive)
			replaced := make(chan struct{})
			var waits, failed atomic.Bool
			if op != "delete" {
				a.hooks.Before(func(ctx context.Context, r hookstore.Request) error {
					if op == late && r.Op == "delete" && r.Key == pointer && waits.CompareAndSwap(false, true) {
						<-replaced // as a system call on a network file system: it heeds no context
					}
					return mayNotDelete(ctx, r)
				})
			}
			var other *Lock
			a.hooks.After(func(ctx context.Context, r hookstore.Request, err error) error {
				if strings.HasPrefix(op, r.Op) && r.Key == pointer && failed.CompareAndSwap(false, true) {
					other = w.replaces(ctx, k, b)
					close(replaced)
					time.Sleep(time.Millisecond)
					return errOutage
				}
				return err
			})
			k.Release(t.Context())
			w.lasts(other)
			if op == "delete" {
				w.empty()
			}
		})
	}
}

// TestReleaseWaitsForTheRefresh: Release waits for a refresh under way, which would put the flag
// back.
func TestReleaseWaitsForTheRefresh(t *testing.T) {
	eachMode(t, func(t *testing.T, w *world, mode Mode) {
		a := w.machine()
		k := a.takes(t, mode)
		a.hooks.Before(func(_ context.Context, r hookstore.Request) error {
			if r.Op == "put" {
				time.Sleep(3 * time.Second)
			}
			return nil
		})
		time.Sleep(31 * time.Second)
		time.AfterFunc(time.Second, func() {
			if alive(k) {
				t.Error("the work goes on while Release waits")
			}
		})
		mustRelease(t, k)
		time.Sleep(10 * time.Second)
		w.empty()
	})
}

// TestReleaseSendsNoPut: a refresh whose look is answered after Release was called sends no put, which could
// come after the deletes.
func TestReleaseSendsNoPut(t *testing.T) {
	bothModes(t, lacking, func(t *testing.T, w *world, mode Mode) {
		a := w.machine(func(o *Options) { o.Look = DefaultTTL })
		k := a.takes(t, mode)
		time.Sleep(29 * time.Second)
		a.hooks.Count()
		released := make(chan error)
		a.hooks.After(func(_ context.Context, r hookstore.Request, err error) error {
			if r.Op == "list" && r.Key == k.Key() {
				go func() { released <- k.Release(t.Context()) }()
				time.Sleep(time.Second)
			}
			return err
		})
		if err := <-released; err != nil {
			t.Error(err)
		}
		if _, by := a.hooks.Count(); by["put"] > int(mode)-1 { // lock.exclusive was looked at before
			t.Errorf("%v", by)
		}
		w.empty()
	})
}

// TestReleaseEndsTheContextFirst: Release ends the lock's context before it deletes anything.
func TestReleaseEndsTheContextFirst(t *testing.T) {
	do(t, func(t *testing.T, w *world) {
		a := w.machine()
		k := a.takes(t, Exclusive)
		var deletes atomic.Int32
		a.hooks.Before(func(_ context.Context, r hookstore.Request) error {
			if r.Op != "delete" {
				return nil
			}
			deletes.Add(1)
			if alive(k) {
				t.Error("others can be in, and the context lives")
			}
			return nil
		})
		k.Release(t.Context())
		if deletes.Load() == 0 {
			t.Error("it deleted nothing")
		}
	})
}

// TestReleaseAfterAnHour: Release deletes lock.exclusive by the lease of the last refresh.
func TestReleaseAfterAnHour(t *testing.T) {
	do(t, func(t *testing.T, w *world) {
		k := w.machine().takes(t, Exclusive)
		time.Sleep(time.Hour)
		k.Release(t.Context())
		w.empty()
	})
}

// TestReleaseOfALostLockLeavesTheNextHolder: the release of a lost lock leaves lock.exclusive
// alone, which can be another holder's, also if a refresh is about to notice the loss.
func TestReleaseOfALostLockLeavesTheNextHolder(t *testing.T) {
	for _, noticed := range []bool{true, false} {
		do(t, func(t *testing.T, w *world) {
			a, b := w.machine(), w.machine()
			k := a.takes(t, Exclusive)
			time.Sleep(29 * time.Second)
			b.Break(t.Context(), BreakOptions{})
			other := b.takes(t, Exclusive)
			if noticed {
				<-k.Context().Done()
			} else {
				a.hooks.Before(takesASecond)
				time.Sleep(2 * time.Second)
			}
			k.Release(t.Context())
			time.Sleep(time.Minute)
			if !alive(other) || len(w.keys()) != 2 {
				t.Errorf("noticed %t: the successor was harmed: %v, %v", noticed, other.Lost(), w.keys())
			}
		})
	}
}

// TestHalfReleasedIsHeld: Release deletes lock.exclusive and the flag at once. Until both are
// deleted, the one that is left keeps all others out.
func TestHalfReleasedIsHeld(t *testing.T) {
	for _, slow := range []string{pointer, "index/lock.intent/"} {
		for name, opts := range map[string]mem.Options{"kept": {}, "claimed": claiming, "none": lacking} {
			sub(t, slow+" "+name, opts, func(t *testing.T, w *world) {
				a := w.machine()
				k := a.takes(t, Exclusive)
				time.Sleep(10 * time.Second)
				a.hooks.Before(func(_ context.Context, r hookstore.Request) error {
					if r.Op == "delete" && strings.HasPrefix(r.Key, slow) {
						time.Sleep(4 * time.Second)
					}
					return nil
				})
				done := make(chan error, 1)
				go func() { done <- k.Release(t.Context()) }()
				for range 3 {
					time.Sleep(time.Second)
					for _, mode := range []Mode{Shared, Exclusive} {
						w.machine().refused(t, mode)
					}
					if keys := w.keys(); len(keys) != 1 || !strings.HasPrefix(keys[0], slow) {
						t.Errorf("half released: %v", keys)
					}
				}
				if err := <-done; err != nil {
					t.Error(err)
				}
				w.empty()
			})
		}
	}
}

// TestLookBeforeReleaseCounts: a release looks at lock.exclusive unless Check has just shown that
// it is its own. A look that is older doesn't count, nor for a second request. (Each request takes
// a second.)
func TestLookBeforeReleaseCounts(t *testing.T) {
	for _, c := range []struct {
		name  string
		since time.Duration // Check
		fails int           // deletions of lock.exclusive without an answer
		gets  int
	}{
		{"just now", 0, 0, 0},
		{"a moment ago", 2190 * time.Millisecond, 0, 0},
		{"too long ago", 2210 * time.Millisecond, 0, 1},
		{"for one request", 0, 1, 1},
		{"for one of three", 0, 2, 2},
	} {
		sub(t, c.name, lacking, func(t *testing.T, w *world) {
			a := w.machine(func(o *Options) { o.Look = DefaultTTL })
			a.hooks.Before(takesASecond)
			k := a.takes(t, Exclusive)
			time.Sleep(10 * time.Second)
			if err := k.Check(t.Context()); err != nil {
				t.Error(err)
			}
			time.Sleep(c.since)
			var gets, failed int
			a.hooks.Before(func(ctx context.Context, r hookstore.Request) error {
				_ = takesASecond(ctx, r)
				if r.Key != pointer {
					return nil
				}
				if r.Op == "get" {
					gets++
				}
				if r.Op == "delete" && failed < c.fails {
					failed++
					return errOutage
				}
				return nil
			})
			if err := k.Release(t.Context()); err != nil || gets != c.gets {
				t.Errorf("%v; %d looks, want %d", err, gets, c.gets)
			}
			w.empty()
		})
	}
}

// TestReleaseStopsAtTheDeadline: Release neither waits for nor repeats a delete of lock.exclusive
// beyond the lease.
func TestReleaseStopsAtTheDeadline(t *testing.T) {
	do(t, func(t *testing.T, w *world) {
		a := w.machine()
		k := a.takes(t, Exclusive)
		a.hooks.Before(outage)
		time.Sleep(54 * time.Second)
		deadline := time.Now().Add(k.Deadline() - a.clock.Elapsed())
		var deletes atomic.Int32
		a.hooks.Before(func(_ context.Context, r hookstore.Request) error {
			if r.Key != pointer {
				return errOutage
			}
			if deletes.Add(1); time.Now().After(deadline) {
				t.Errorf("%s of lock.exclusive %v after the deadline", r.Op, time.Since(deadline))
			}
			return errOutage
		})
		k.Release(t.Context())
		if deletes.Load() == 0 {
			t.Error("it asked for no lock.exclusive")
		}
	})
}

func TestReleaseTwiceAndAfterContext(t *testing.T) {
	do(t, func(t *testing.T, w *world) {
		ctx, cancel := context.WithCancel(t.Context())
		k, err := w.machine().Exclusive(ctx, "prune", Parent(ctx))
		mustLock(t, k, err)
		cancel() // TestParentEndsTheLocksContext
		for range 2 {
			if err := k.Release(ctx); err != nil {
				t.Errorf("release: %v", err)
			}
		}
		w.empty()
		if err := k.Renew(t.Context()); !errors.Is(err, ErrReleased) {
			t.Errorf("check after release: %v", err)
		}
		if left := k.Left(); left != 0 {
			t.Errorf("%v left after release", left)
		}
	})
}
