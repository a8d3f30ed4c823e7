package replock

import (
	"context"
	"errors"
	"strings"
	"sync"
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
			k := a.takes(t, mode)
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
			b.refused(t, Exclusive)
			time.Sleep(10 * time.Minute)
			if !alive(r) {
				t.Fatalf("lost again: %v", r.Lost())
			}
			mustRelease(t, r)
			w.empty()
		}
	})
}

// TestNoResume: once another holder has been in, or is, the lock isn't resumed.
func TestNoResume(t *testing.T) {
	eachMode(t, func(t *testing.T, w *world, mode Mode) {
		for _, still := range []bool{false, true} {
			a, b := w.machine(), w.machine()
			k := a.takes(t, mode)
			a.lose(t, k)
			time.Sleep(20 * time.Second)
			other := b.takes(t, Exclusive)
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
	for name, opts := range map[string]mem.Options{"lacked": lacking, "ignored": ignoring} {
		sub(t, name, opts, func(t *testing.T, w *world) {
			a, b := w.machine(), w.machine()
			k := a.takes(t, Shared)
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
			other := b.takes(t, Exclusive)
			other.Release(t.Context())
			<-late
			a.hooks.Before(nil)
			if r, err := k.Resume(t.Context()); r != nil {
				t.Fatal("resumed although a prune has been in between")
			} else if !errors.Is(err, ErrLost) {
				t.Fatal(err)
			}
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
		k := a.takes(t, Shared)
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
			sub(t, name+" "+mode.String(), opts, func(t *testing.T, w *world) {
				a, b := w.machine(), w.machine()
				k := a.takes(t, mode)
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
			k := a.takes(t, mode)
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
		k := a.takes(t, mode)
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
	})
}

// TestSuspendAlone: if no other holder was in, the lock is resumed. It was held until its deadline.
func TestSuspendAlone(t *testing.T) {
	eachMode(t, func(t *testing.T, w *world, mode Mode) {
		a := w.machine()
		k := a.takes(t, mode)
		a.clock.Stop(8 * time.Hour)
		<-k.Context().Done()
		a.Flush(t.Context())
		if e := a.seen[len(a.seen)-1]; e.Kind != EventLost || e.Held != 55*time.Second {
			t.Errorf("%s: held for %v", e.Kind, e.Held)
		}
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
			bubble(t, mem.Options{NoStoreClock: true}, func(t *testing.T, w *world) {
				a := w.machine()
				k := a.takes(t, mode)
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
			k := a.takes(t, mode)
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
			mustRelease(t, k)
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
			bubble(t, mem.Options{Precision: time.Second}, func(t *testing.T, w *world) {
				time.Sleep(time.Duration(phase) * 100 * time.Millisecond)
				a := w.machine()
				k := a.takes(t, Shared)
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
			})
		}
	}
}

// TestNoResumeWhenPassedMeanwhile: a lock is not resumed if another holder was in and out
// while the resume was under way.
func TestNoResumeWhenPassedMeanwhile(t *testing.T) {
	eachMode(t, func(t *testing.T, w *world, mode Mode) {
		a, b := w.machine(), w.machine()
		k := a.takes(t, mode)
		a.lose(t, k)
		time.Sleep(10 * time.Second)
		// b has looked, and is about to delete the stale flag.
		came, gate := make(chan struct{}), make(chan struct{})
		var first atomic.Bool
		b.hooks.Before(func(_ context.Context, r hookstore.Request) error {
			if r.Op == "delete" && r.Key == k.Key() && first.CompareAndSwap(false, true) {
				close(came)
				<-gate
			}
			return nil
		})
		var in bool
		done := make(chan struct{})
		go func() {
			defer close(done)
			other, err := b.Exclusive(context.Background(), "prune")
			if err != nil {
				t.Logf("b: %v", err)
				return
			}
			in = true
			time.Sleep(300 * time.Millisecond) // a short prune
			other.Release(context.Background())
		}()
		<-came
		var looks atomic.Int64
		a.hooks.Before(func(_ context.Context, r hookstore.Request) error {
			if r.Op == "list" && r.Key == "index/lock." && looks.Add(1) == 1 {
				close(gate)
				time.Sleep(10 * time.Millisecond)
			}
			return nil
		})
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		r, err := k.Resume(ctx)
		select {
		case <-gate:
		default:
			close(gate)
		}
		<-done
		t.Logf("in between: %v; resumed: %v, %v", in, r != nil, err)
		if in && r != nil {
			t.Error("resumed although a prune has been in between")
		}
		if r != nil {
			r.Release(t.Context())
		}
	})
}

// TestResumeHarmsNoLaterHolder: a resume doesn't overwrite the lock.exclusive of a holder that has
// come in since.
func TestResumeHarmsNoLaterHolder(t *testing.T) {
	for name, opts := range map[string]mem.Options{"kept": {}, "lacked": lacking, "ignored": ignoring} {
		t.Run(name, func(t *testing.T) {
			harmed := 0
			for head := -1500 * time.Millisecond; head <= 1500*time.Millisecond; head += 50 * time.Millisecond {
				bubble(t, opts, func(t *testing.T, w *world) {
					a, b := w.machine(), w.machine()
					k := a.takes(t, Exclusive)
					a.lose(t, k)
					time.Sleep(10 * time.Second)
					r, other := resumeAgainst(t, a, k, b, head)
					time.Sleep(2 * time.Minute)
					if r != nil && other != nil && alive(r) && alive(other) {
						t.Errorf("head %v: both", head)
					}
					if other != nil && !alive(other) {
						harmed++
						t.Logf("head %v: %v", head, other.Lost())
					}
					for _, x := range []*Lock{k, r, other} {
						if x != nil {
							x.Release(t.Context())
						}
					}
				})
			}
			if harmed > 0 {
				t.Errorf("a resume harmed a live holder %d times", harmed)
			}
		})
	}
}

// TestResumeDatesItsFlagFromWhenItIsSeen: a lock isn't resumed after a prune has come and
// gone, although a late refresh has put the old flag back and a late put replaces the new one.
func TestResumeDatesItsFlagFromWhenItIsSeen(t *testing.T) {
	bubble(t, lacking, func(t *testing.T, w *world) {
		a, b := w.machine(), w.machine()
		k := a.takes(t, Shared)
		late := make(chan struct{})
		a.hooks.Before(func(_ context.Context, r hookstore.Request) error {
			if r.Op == "put" { // the refresh that is sent at 30 s is applied at 66 s
				a.hooks.Before(outage)
				time.AfterFunc(36*time.Second, func() { w.put(r.Key, r.Body); close(late) })
				return errOutage
			}
			return nil
		})
		<-k.Context().Done()
		time.Sleep(8 * time.Second)
		b.takes(t, Exclusive).Release(t.Context())
		<-late
		var puts, lists atomic.Int32
		a.hooks.Before(func(_ context.Context, r hookstore.Request) error {
			if r.Op == "put" && r.Key != k.Key() && puts.Add(1) == 1 {
				time.AfterFunc(7500*time.Millisecond, func() { w.put(r.Key, r.Body) })
				return errOutage
			}
			if r.Op == "list" && lists.Add(1) == 1 {
				time.Sleep(7900 * time.Millisecond)
			}
			return nil
		})
		if r, err := k.Resume(t.Context()); err == nil {
			t.Error("resumed although a prune has been in between")
			r.Release(t.Context())
		}
	})
}

// TestNoResumeOfAnEmptiedFlag: a lock with an emptied flag was passed by a client without the
// right to delete, and is not resumed.
func TestNoResumeOfAnEmptiedFlag(t *testing.T) {
	eachMode(t, func(t *testing.T, w *world, mode Mode) {
		a, b := w.machine(), w.machine()
		k := a.takes(t, mode)
		a.lose(t, k)
		w.put(k.Key(), nil)
		a.hooks.Before(nil)
		if r, err := k.Resume(t.Context()); r != nil || !errors.Is(err, ErrLost) {
			t.Errorf("resumed: %v", err)
		}
		k.Release(t.Context())
		_ = b
	})
}

// TestResumeStoppedMidway: a resume that was stopped for longer than a lease hasn't resumed by
// the flag that it put before.
func TestResumeStoppedMidway(t *testing.T) {
	for _, op := range []string{"list", "delete"} {
		bothModes(t, mem.Options{}, func(t *testing.T, w *world, mode Mode) {
			a := w.machine()
			k := a.takes(t, mode)
			a.lose(t, k)
			a.hooks.Before(nil)
			var done atomic.Bool
			a.hooks.After(func(_ context.Context, r hookstore.Request, err error) error {
				if r.Op == op && (op == "delete" || r.Key == "index/lock.") && done.CompareAndSwap(false, true) {
					a.clock.jump(2 * time.Minute)
				}
				return err
			})
			r, err := k.Resume(t.Context())
			if r != nil {
				if left := r.Deadline() - a.clock.Elapsed(); left < 0 {
					t.Errorf("%s, stopped at %s: resumed with a lease that ended %v ago", mode, op, -left)
				}
				r.Release(t.Context())
			} else if !errors.Is(err, ErrLost) {
				t.Error(err)
			}
		})
	}
}

// TestNoResumeBesideADoubtfulLock: a resume does not pass a lock that is only perhaps stale.
func TestNoResumeBesideADoubtfulLock(t *testing.T) {
	do(t, func(t *testing.T, w *world) {
		a := w.machine()
		k := a.takes(t, Shared)
		a.lose(t, k)
		w.put("index/lock.intent/x", []byte("\x01 ciphertext"))
		time.Sleep(70 * time.Second)
		a.hooks.Before(nil)
		if r, _ := k.Resume(t.Context()); r != nil {
			t.Error("resumed beside a lock that might be live")
		}
	})
}

// TestResumeTriesAgain: a resume tries again after an attempt that failed after its look.
func TestResumeTriesAgain(t *testing.T) {
	eachMode(t, func(t *testing.T, w *world, mode Mode) {
		a := w.machine()
		k := a.takes(t, mode)
		a.lose(t, k)
		until := time.Now().Add(30 * time.Second)
		a.hooks.Before(func(_ context.Context, r hookstore.Request) error {
			if r.Op == "list" && r.Key == "index/lock." && time.Now().Before(until) {
				return errOutage
			}
			return nil
		})
		r, err := k.Resume(t.Context())
		mustLock(t, r, err)
		time.Sleep(5 * time.Minute)
		if !alive(r) {
			t.Error(r.Lost())
		}
		r.Release(t.Context())
		k.Release(t.Context())
		w.empty()
	})
}

// TestResumeNeedsLockExclusive: a lock isn't resumed without its lock.exclusive, which another
// client's break-lock deletes.
func TestResumeNeedsLockExclusive(t *testing.T) {
	do(t, func(t *testing.T, w *world) {
		a := w.machine()
		k := a.takes(t, Exclusive)
		a.lose(t, k)
		a.hooks.Before(first("list", "index/lock.", func(r hookstore.Request) error { return nil }))
		var done atomic.Bool
		a.hooks.After(func(ctx context.Context, r hookstore.Request, err error) error {
			if r.Op == "put" && strings.HasSuffix(r.Key, "lock.exclusive") && done.CompareAndSwap(false, true) {
				w.delete(r.Key)
			}
			return err
		})
		if r, err := k.Resume(t.Context()); r != nil || !errors.Is(err, ErrLost) {
			t.Errorf("resumed without lock.exclusive: %v", err)
		}
	})
}

// TestResumesAtOnceGiveOneLock: of two concurrent Resumes of one lost lock, at most one
// succeeds.
func TestResumesAtOnceGiveOneLock(t *testing.T) {
	eachMode(t, func(t *testing.T, w *world, mode Mode) {
		a := w.machine()
		k := a.takes(t, mode)
		a.lose(t, k)
		a.hooks.Before(takesASecond)
		var rs [2]*Lock
		var wg sync.WaitGroup
		for i := range rs {
			wg.Go(func() {
				rs[i], _ = k.Resume(context.Background())
			})
		}
		wg.Wait()
		if rs[0] != nil && rs[1] != nil {
			t.Errorf("one lost %s lock was resumed as two: alive %v %v", mode, alive(rs[0]), alive(rs[1]))
		}
		for _, r := range rs {
			if r != nil {
				r.Release(context.Background())
			}
		}
		k.Release(context.Background())
	})
}

// TestReleaseAfterACancelledResumeLeavesNothing: a cancelled resume and a release leave no lock behind.
func TestReleaseAfterACancelledResumeLeavesNothing(t *testing.T) {
	do(t, func(t *testing.T, w *world) {
		a, b := w.machine(), w.machine()
		k := a.takes(t, Exclusive)
		a.lose(t, k)
		time.Sleep(20 * time.Second)
		ctx, cancel := context.WithCancel(t.Context())
		a.hooks.Before(func(_ context.Context, r hookstore.Request) error {
			if r.Op == "list" && r.Key == "index/lock." {
				cancel()
			}
			return nil
		})
		if r, err := k.Resume(ctx); r != nil {
			t.Fatal(err)
		} else {
			t.Logf("resume: %v; is canceled: %v", err, errors.Is(err, context.Canceled))
		}
		mustRelease(t, k)
		x, err := b.Exclusive(t.Context(), "prune")
		if err != nil {
			t.Errorf("locked out by leftovers of a cancelled resume and a release: %v: %v", w.keys(), err)
		} else {
			x.Release(t.Context())
		}
	})
}

// TestConcurrentResumesAndReleases: Resume and Release can be called from several goroutines.
func TestConcurrentResumesAndReleases(t *testing.T) {
	do(t, func(t *testing.T, w *world) {
		a := w.machine()
		k := a.takes(t, Shared)
		a.lose(t, k)
		a.hooks.Before(nil)
		var wg sync.WaitGroup
		for range 4 {
			wg.Go(func() {
				if r, _ := k.Resume(context.Background()); r != nil {
					r.Release(context.Background())
				}
			})
		}
		wg.Wait()
		k.Release(context.Background())
	})
}

// TestReleaseDuringResumeLeavesNothing: a Release during a Resume locks no later acquirer out.
func TestReleaseDuringResumeLeavesNothing(t *testing.T) {
	eachMode(t, func(t *testing.T, w *world, mode Mode) {
		for d := time.Duration(0); d < 9*time.Second; d += 500 * time.Millisecond {
			a, b := w.machine(), w.machine()
			k := a.takes(t, mode)
			a.lose(t, k)
			time.Sleep(10 * time.Second)
			a.hooks.Before(takesASecond)
			done := make(chan *Lock)
			go func() {
				r, err := k.Resume(context.Background())
				_ = err
				done <- r
			}()
			time.Sleep(d)
			rerr := k.Release(context.Background())
			r := <-done
			if r != nil {
				if !alive(r) {
					t.Errorf("%v: resumed and dead", d)
				}
				r.Release(context.Background())
			}
			a.hooks.Before(nil)
			if x, err := b.Exclusive(t.Context(), "prune"); err != nil {
				t.Errorf("%v: released (%v), resumed %v, and locked out: %v", d, rerr, r != nil, w.keys())
				time.Sleep(3 * time.Minute)
				w.machine().Break(t.Context(), BreakOptions{})
			} else {
				x.Release(t.Context())
			}
		}
	})
}
