package replock

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/repolock/repolock/internal/test/hookstore"
	"github.com/repolock/repolock/store/mem"
)

// lose makes a lock expire in an outage of the machine's way to the store, which continues.
func (m *machine) lose(t *testing.T, k *Lock) {
	t.Helper()
	m.hooks.Before(outage)
	<-k.Context().Done()
	if lost := k.Lost(); lost == nil || lost.Definite {
		t.Fatalf("lost: %v", lost)
	}
}

func TestResumeAfterOutage(t *testing.T) {
	eachMode(t, func(t *testing.T, w *world, mode Mode) {
		for _, outage := range []time.Duration{0, 3 * time.Second, 5 * time.Minute} {
			a, b := w.machine(), w.machine()
			k, err := a.acquire(t.Context(), mode, "x")
			mustLock(t, k, err)
			a.lose(t, k)
			time.AfterFunc(outage, func() { a.hooks.Before(nil) })
			r, err := k.Resume(t.Context())
			mustLock(t, r, err)
			if alive(k) || !alive(r) {
				t.Error("the lost lock lives again, or the resumed one doesn't")
			}
			if r.Key() == k.Key() {
				t.Error("resumed under the same key")
			}
			if err := k.Release(t.Context()); err != nil {
				t.Errorf("releasing the lost lock: %v", err)
			}
			other, err := b.Exclusive(t.Context(), "prune")
			mustHeld(t, other, err)
			time.Sleep(10 * time.Minute)
			if !alive(r) {
				t.Fatalf("lost again: %v", r.Lost())
			}
			if err := r.Release(t.Context()); err != nil {
				t.Fatal(err)
			}
			w.empty()
		}
	})
}

// TestNoResume: once another holder has been in, or is, the lock isn't resumed.
func TestNoResume(t *testing.T) {
	eachMode(t, func(t *testing.T, w *world, mode Mode) {
		for _, still := range []bool{false, true} {
			a, b := w.machine(), w.machine()
			k, err := a.acquire(t.Context(), mode, "x")
			mustLock(t, k, err)
			a.lose(t, k)
			time.Sleep(20 * time.Second)
			other, err := b.Exclusive(t.Context(), "prune")
			mustLock(t, other, err)
			if !still {
				other.Release(t.Context())
			}
			a.hooks.Before(nil)
			r, err := k.Resume(t.Context())
			var lost *LostError
			if r != nil || !errors.As(err, &lost) || !lost.Definite {
				t.Fatalf("resumed after another was in: %v", err)
			}
			if still {
				time.Sleep(5 * time.Minute)
				if !alive(other) {
					t.Errorf("the other one was harmed: %v", other.Lost())
				}
			}
			k.Release(t.Context())
			other.Release(t.Context())
			w.empty()
		}
	})
}

// TestNoResumeAfterLateRefresh: a refresh that is applied only after another holder has come
// and gone puts the old flag back. That flag proves nothing.
func TestNoResumeAfterLateRefresh(t *testing.T) {
	for name, opts := range map[string]mem.Options{"lacked": lacking, "ignored": {IfAbsent: mem.Ignored, IfMatch: mem.Ignored}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, opts)
				a, b := w.machine(), w.machine()
				k, err := a.Shared(t.Context(), "backup")
				mustLock(t, k, err)
				// The put of the refresh at 30 s is applied at 80 s.
				late := make(chan struct{})
				a.hooks.Before(func(_ context.Context, r hookstore.Request) error {
					if r.Op == "put" {
						a.hooks.Before(outage)
						go func() {
							time.Sleep(50 * time.Second)
							w.put(r.Key, r.Body)
							close(late)
						}()
						return errOutage
					}
					return nil
				})
				<-k.Context().Done()
				time.Sleep(10 * time.Second)
				other, err := b.Exclusive(t.Context(), "prune")
				mustLock(t, other, err)
				other.Release(t.Context())
				<-late
				a.hooks.Before(nil)
				if r, err := k.Resume(t.Context()); r != nil {
					t.Fatal("resumed although a prune has been in between")
				} else if !errors.Is(err, ErrLost) {
					t.Fatal(err)
				}
				k.Release(t.Context())
			})
		})
	}
}

// TestResumeAfterALateRefreshThatCameInTime: a refresh that was applied, and not answered, is no
// reason to refuse, if the one before was answered within a ttl of it, and nothing has shown since
// when that was written.
func TestResumeAfterALateRefreshThatCameInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, mem.Options{NoTime: true}) // answers to puts tell no mod time, and no look precedes them
		a := w.machine()
		k, err := a.Shared(t.Context(), "backup")
		mustLock(t, k, err)
		for a.saw(EventRefreshed) == 0 {
			time.Sleep(100 * time.Millisecond)
			a.Flush(t.Context())
		}
		a.hooks.Before(func(ctx context.Context, r hookstore.Request) error {
			if r.Op != "put" {
				return errOutage
			}
			a.hooks.Before(outage)
			time.Sleep(7 * time.Second)
			w.put(r.Key, r.Body)
			return errOutage
		})
		<-k.Context().Done()
		a.hooks.Before(nil)
		resumed, err := k.Resume(t.Context())
		mustLock(t, resumed, err)
		resumed.Release(t.Context())
		k.Release(t.Context())
		w.empty()
	})
}

// TestNoResumeAfterARefreshThatAPauseDelayed: so it is if the machine was paused by its hypervisor,
// whose clocks show the refresh as one that came soon. The store's show it.
func TestNoResumeAfterARefreshThatAPauseDelayed(t *testing.T) {
	for name, opts := range map[string]mem.Options{"lacked": lacking, "no time": {IfAbsent: mem.Lacked, IfMatch: mem.Lacked, NoTime: true, Precision: time.Second}} {
		for _, mode := range []Mode{Shared, Exclusive} {
			t.Run(name+" "+mode.String(), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					w := newWorld(t, opts)
					a, b := w.machine(), w.machine()
					k, err := a.acquire(t.Context(), mode, "backup")
					mustLock(t, k, err)
					went := a.pausedInRefresh(w, k, 150*time.Second)
					b.untilFreeFor(t, Exclusive, 100*time.Millisecond)
					if !time.Now().Before(went) {
						t.Fatal("the prune got in after the pause")
					}
					a.hooks.Before(func(ctx context.Context, r hookstore.Request) error {
						if time.Now().Before(went) && r.Key == k.Key() { // on its way
							return nil
						}
						return outage(ctx, r)
					})
					time.Sleep(time.Until(went))
					<-k.Context().Done()
					a.hooks.Before(nil)
					if r, err := k.Resume(t.Context()); r != nil {
						t.Error("resumed although a prune has been in between")
						r.Release(t.Context())
					} else if !errors.Is(err, ErrLost) {
						t.Error(err)
					}
					k.Release(t.Context())
				})
			})
		}
	}
}

// TestResumeAgainstAcquire races a resume with an acquire, each request of both taking a
// different time. They must never both succeed.
func TestResumeAgainstAcquire(t *testing.T) {
	eachMode(t, func(t *testing.T, w *world, mode Mode) {
		for head := -1500 * time.Millisecond; head <= 1500*time.Millisecond; head += 50 * time.Millisecond {
			a, b := w.machine(), w.machine()
			k, err := a.acquire(t.Context(), mode, "x")
			mustLock(t, k, err)
			a.lose(t, k)
			time.Sleep(10 * time.Second)
			r, other := resumeAgainst(t, a, k, b, head)
			if r != nil && other != nil {
				t.Fatalf("head start %v: resumed and acquired", head)
			}
			if r == nil && other == nil {
				t.Logf("head start %v: neither", head)
			}
			k.Release(t.Context())
			for _, x := range []*Lock{r, other} {
				if x != nil {
					x.Release(t.Context())
				}
			}
			time.Sleep(2 * time.Minute)
			w.machine().Break(t.Context(), BreakOptions{})
		}
	})
}

// TestSuspend: after a suspend past the deadline the lock's context ends within
// a second of waking, though no timer counted the time; after a shorter one the
// lock is still held.
func TestSuspend(t *testing.T) {
	eachMode(t, func(t *testing.T, w *world, mode Mode) {
		a, b := w.machine(), w.machine()
		k, err := a.acquire(t.Context(), mode, "x")
		mustLock(t, k, err)
		time.Sleep(10 * time.Second)
		a.clock.Stop(40 * time.Second)
		time.Sleep(42 * time.Second)
		if !alive(k) {
			t.Fatalf("lost after a short suspend: %v", k.Lost())
		}
		time.Sleep(20 * time.Second)
		const long = 2 * time.Minute
		a.clock.Stop(long)
		start := time.Now()
		for time.Since(start) < long-5*time.Second {
			if other, err := b.Exclusive(t.Context(), "prune"); err == nil {
				other.Release(t.Context())
			}
			time.Sleep(time.Second)
		}
		<-k.Context().Done()
		if d := time.Since(start); d > long+time.Second {
			t.Errorf("noticed %v after waking", d-long)
		}
		if r, err := k.Resume(t.Context()); r != nil || !errors.Is(err, ErrLost) {
			t.Fatalf("resumed although another holder was in: %v", err)
		}
		k.Release(t.Context())
	})
}

// TestSuspendAlone: if no other holder was in, the lock is resumed.
func TestSuspendAlone(t *testing.T) {
	eachMode(t, func(t *testing.T, w *world, mode Mode) {
		a := w.machine()
		k, err := a.acquire(t.Context(), mode, "x")
		mustLock(t, k, err)
		a.clock.Stop(8 * time.Hour)
		<-k.Context().Done()
		r, err := k.Resume(t.Context())
		mustLock(t, r, err)
		r.Release(t.Context())
		w.empty()
	})
}

// resumeAgainst makes a resume its lock while b takes the exclusive one, on a slow store. b
// begins head after a.
func resumeAgainst(t *testing.T, a *machine, k *Lock, b *machine, head time.Duration) (resumed, other *Lock) {
	slow := func(d time.Duration) func(context.Context, hookstore.Request) error {
		return func(context.Context, hookstore.Request) error { time.Sleep(d); return nil }
	}
	a.hooks.Before(slow(130 * time.Millisecond))
	b.hooks.Before(slow(170 * time.Millisecond))
	done := make(chan struct{})
	go func() {
		defer close(done)
		time.Sleep(max(head, 0))
		other, _ = b.Exclusive(context.Background(), "prune")
	}()
	time.Sleep(max(-head, 0))
	resumed, _ = k.Resume(t.Context())
	<-done
	return resumed, other
}

// TestNoResumeOfAnotherVersionWithoutAClock: if mod times can be a client's, only the version
// of the last answer is known to have existed before others could pass. A refresh that was
// applied late isn't.
func TestNoResumeOfAnotherVersionWithoutAClock(t *testing.T) {
	for _, mode := range []Mode{Shared, Exclusive} {
		for _, late := range []bool{false, true} {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, mem.Options{NoStoreClock: true})
				a := w.machine()
				k, err := a.acquire(t.Context(), mode, "x")
				mustLock(t, k, err)
				var refreshed atomic.Value
				a.hooks.Before(func(_ context.Context, r hookstore.Request) error {
					if r.Op == "put" && r.Key == k.Key() {
						refreshed.Store(r.Body)
					}
					return errOutage
				})
				<-k.Context().Done()
				if late {
					w.put(k.Key(), refreshed.Load().([]byte))
				}
				a.hooks.Before(nil)
				r, err := k.Resume(t.Context())
				var lost *LostError
				switch {
				case !late && err != nil:
					t.Errorf("%s: not resumed: %v", mode, err)
				case late && (!errors.As(err, &lost) || !lost.Definite):
					t.Errorf("%s: resumed after a late refresh: %v", mode, err)
				}
				if r != nil {
					r.Release(t.Context())
				}
				k.Release(t.Context())
			})
		}
	}
}

// TestReleasedWhileItIsResumed: a release at any moment of a resume leaves no lock and no
// object.
func TestReleasedWhileItIsResumed(t *testing.T) {
	eachMode(t, func(t *testing.T, w *world, mode Mode) {
		for after := range 30 {
			a := w.machine()
			k, err := a.acquire(t.Context(), mode, "x")
			mustLock(t, k, err)
			a.lose(t, k)
			a.hooks.Before(func(context.Context, hookstore.Request) error { time.Sleep(100 * time.Millisecond); return nil })
			resumed := make(chan error, 1)
			var released atomic.Bool
			go func() {
				r, err := k.Resume(t.Context())
				if err == nil {
					if released.Load() {
						t.Errorf("resumed after Release was called, after %d", after)
					}
					err = r.Release(t.Context())
				}
				resumed <- err
			}()
			time.Sleep(time.Duration(after)*33*time.Millisecond + time.Millisecond)
			released.Store(true)
			if err := k.Release(t.Context()); err != nil {
				t.Error(err)
			}
			if err := <-resumed; err != nil && !errors.Is(err, ErrReleased) && !errors.Is(err, ErrLost) {
				t.Errorf("released after %d: %v", after, err)
			}
			a.hooks.Before(nil)
			time.Sleep(2 * time.Minute)
			if keys := w.keys(); len(keys) > 0 {
				t.Fatalf("released after %d: left over: %v", after, keys)
			}
		}
	})
}

// TestResumeAllowsForRoundedTimes: if a refresh was applied when the flag could already be
// reaped, the lock isn't resumed, however the store rounds its times.
func TestResumeAllowsForRoundedTimes(t *testing.T) {
	for late := range 10 {
		for phase := range 10 {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, mem.Options{Precision: time.Second})
				time.Sleep(time.Duration(phase) * 100 * time.Millisecond)
				a := w.machine()
				k, err := a.Shared(t.Context(), "x")
				mustLock(t, k, err)
				reapable := time.Now().Add(DefaultTTL)
				var refreshed atomic.Value
				a.hooks.Before(func(_ context.Context, r hookstore.Request) error {
					if r.Op == "put" && r.Key == k.Key() {
						refreshed.Store(r.Body)
					}
					return errOutage
				})
				time.Sleep(time.Until(reapable) + time.Duration(late)*100*time.Millisecond + time.Millisecond)
				w.put(k.Key(), refreshed.Load().([]byte))
				a.hooks.Before(nil)
				time.Sleep(time.Duration(late+phase) * 77 * time.Millisecond)
				r, err := k.Resume(t.Context())
				var lost *LostError
				if !errors.As(err, &lost) || !lost.Definite {
					t.Errorf("refreshed %d ms too late, phase %d: %v", late*100, phase, err)
				}
				if r != nil {
					r.Release(t.Context())
				}
				k.Release(t.Context())
			})
		}
	}
}
