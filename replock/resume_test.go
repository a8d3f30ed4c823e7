package replock

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/repolock/repolock/internal/test/assert"
	"github.com/repolock/repolock/internal/test/hookstore"
	"github.com/repolock/repolock/internal/test/rounds"
	"github.com/repolock/repolock/replock/internal/wire"
	"github.com/repolock/repolock/store"
	"github.com/repolock/repolock/store/memory"
)

// lose makes a lock expire in an outage of the machine's way to the store, which continues. outlives ends the outage.
func (m *machine) lose(t *testing.T, k *Lock) {
	t.Helper()
	m.hooks.Before(outage)
	<-k.Context().Done()
	if lost := whyLost(k); lost == nil || lost.Definite {
		t.Fatalf("lost: %v", lost)
	}
}

func (m *machine) outlives(t *testing.T, k *Lock) {
	t.Helper()
	m.lose(t, k)
	m.hooks.Before(nil)
}

func TestResumeAfterOutage(t *testing.T) {
	stores.modes(t, func(t *testing.T, w *world, mode Mode) {
		for _, outage := range []time.Duration{0, 3 * time.Second, 5 * time.Minute} {
			a, k := w.holder(t, mode)
			a.lose(t, k)
			time.AfterFunc(outage, func() {
				for _, ask := range []func(context.Context) error{k.Refresh, k.Check} {
					isAll(t, ask(t.Context()), ErrLost)
				}
				assert.That(t, !alive(k) && k.Left() == 0 && k.Lost() != nil, "held before it is resumed: %v left", k.Left())
				a.hooks.Before(nil)
			})
			work, key, id := k.Context(), k.Key(), k.ID()
			mustResume(t, k)
			assert.That(t, errors.Is(context.Cause(work), ErrLost), "the context that ended with the loss lives again")
			assert.That(t, k.Key() != key && k.ID() != id, "resumed under the same key or id")
			w.machine().refused(t, Exclusive)
			time.Sleep(10 * time.Minute)
			lives(t, k)
			w.leavesNothing(k)
		}
	})
}

// TestNoResume: once another holder has been in, or might be, the lock isn't resumed: another's lock is there,
// also one that is only perhaps stale, or the old flag is gone or emptied.
func TestNoResume(t *testing.T) {
	for what, then := range map[string]func(w *world, k *Lock) *Lock{
		"was in": func(w *world, _ *Lock) *Lock {
			w.machine().takes(w.t, Exclusive).Release(w.t.Context())
			return nil
		},
		"is in":      func(w *world, k *Lock) *Lock { return w.machine().takes(w.t, Exclusive) },
		"emptied it": func(w *world, k *Lock) *Lock { w.put(k.Key(), nil); return nil },
		"might be in": func(w *world, k *Lock) *Lock {
			w.put("index/lock.intent/x", []byte("\x01 ciphertext"))
			time.Sleep(70 * time.Second)
			return nil
		},
	} {
		t.Run(what, func(t *testing.T) {
			stores.holders(t, func(t *testing.T, w *world, a *machine, k *Lock) {
				a.lose(t, k)
				time.Sleep(20 * time.Second)
				other := then(w, k)
				a.hooks.Before(nil)
				mustNotResume(t, k)
				k.Release(t.Context())
				if other != nil {
					w.lasts(other)
				}
				if strings.HasSuffix(what, "s in") {
					w.empty()
				}
			})
		})
	}
}

// mustNotResume fails if a lock is resumed, or could be later.
func mustNotResume(t *testing.T, k *Lock) {
	t.Helper()
	lost, ok := errors.AsType[*LostError](k.Resume(t.Context()))
	assert.That(t, ok && lost.Definite && !alive(k) && k.Left() == 0, "resumed: %v", lost)
}

// TestNoResumeAfterLateRefresh: a refresh that is applied only after another holder has come
// and gone puts the old flag back. That flag proves nothing, also if a late put replaces the new one.
func TestNoResumeAfterLateRefresh(t *testing.T) {
	for _, both := range yesNo {
		kinds{"lacked": lacking, "ignored": ignoring}.each(t, func(t *testing.T, w *world) {
			a, k := w.holder(t, Shared)
			late := make(chan struct{})
			a.hooks.Before(first("put", "", func(r hookstore.Request) error {
				a.hooks.Before(outage)
				time.AfterFunc(36*time.Second, func() { w.put(r.Key, r.Body); close(late) })
				return errOutage
			}))
			<-k.Context().Done()
			time.Sleep(8 * time.Second)
			w.machine().takes(t, Exclusive).Release(t.Context())
			<-late
			a.hooks.Before(nil)
			if both {
				a.hooks.Before(inTurn(w.delaysFirst(7500*time.Millisecond), slowFirst("list", "", 7900*time.Millisecond)))
			}
			mustNotResume(t, k)
		})
	}
}

// TestNoResumeOfAnAcquireThatWasAppliedTwice: the store has answered the flag's first put, and applies it again after
// another holder has come and gone. The holder might have refreshed the flag in between, without a look since.
func TestNoResumeOfAnAcquireThatWasAppliedTwice(t *testing.T) {
	for _, refreshed := range yesNo {
		everyStore := maps.Clone(stores)
		everyStore["untimed"] = memory.Options{IfAbsent: memory.Lacked, IfMatch: memory.Lacked, UntimedPuts: true, NoTime: true}
		everyStore.each(t, func(t *testing.T, w *world) {
			a, k := w.holder(t, Shared)
			first, _, err := w.mem.Get(t.Context(), k.Key(), wire.MaxBody)
			assert.OK(t, err)
			if refreshed {
				a.hooks.Before(when("put", k.Key(), func(context.Context, hookstore.Request) error {
					a.hooks.Before(outage)
					return nil
				}))
				<-k.Context().Done()
			} else {
				a.lose(t, k)
			}
			time.Sleep(10 * time.Second)
			w.machine().takes(t, Exclusive).Release(t.Context())
			w.put(k.Key(), first)
			a.hooks.Before(nil)
			mustNotResume(t, k)
		})
	}
}

// TestWholeVersions: a version of a flag is whole at one mod time: the one at which it was first known to be. A later one
// shows that the store has applied its put again.
func TestWholeVersions(t *testing.T) {
	const ttl = time.Minute
	at := func(s int) time.Time { return time.Unix(int64(s), 0) }
	begun := func() *lineage { // the first version, put at 100 s
		v := &lineage{answered: "1", before: at(100).UnixNano()}
		assert.That(t, v.inTime("1", at(100), ttl), "the first version isn't whole")
		v.seen("1", at(100))
		return v
	}
	whole := func(v *lineage, etag string, mod int, want bool) {
		t.Helper()
		equal(t, fmt.Sprintf("version %s of %d s is whole", etag, mod), v.unbroken(etag, at(mod)), want)
	}
	v := begun()
	v.stored("2", "", 0) // without a condition
	whole(v, "1", 100, true)
	whole(v, "1", 200, false)
	whole(v, "2", 130, false)
	assert.That(t, v.inTime("2", at(130), ttl), "it came in time")
	v.seen("2", at(130))
	whole(v, "2", 130, true)
	whole(v, "2", 131, false)
	whole(v, "1", 100, false)

	v = begun()
	v.stored("2", "1", 0) // it has replaced the first one
	whole(v, "2", 200, true)
	v.seen("2", at(200))
	whole(v, "2", 200, true)
	whole(v, "2", 201, false)

	v = begun()
	v.stored("2", "", 0)
	v.trust(&store.Object{ETag: "2", ModTime: at(200)})
	whole(v, "2", 200, true)
	whole(v, "2", 201, false)
}

// delaysFirst doesn't answer the first put, which is applied after a while.
func (w *world) delaysFirst(d time.Duration) hookstore.Before {
	return first("put", "", func(r hookstore.Request) error {
		time.AfterFunc(d, func() { w.put(r.Key, r.Body) })
		return errOutage
	})
}

// TestResumeAfterALateRefreshThatCameInTime: a refresh that was applied, and not answered, is no reason to refuse,
// if the one before was answered within a ttl of it, and nothing has shown since when that was written.
func TestResumeAfterALateRefreshThatCameInTime(t *testing.T) {
	bubble(t, memory.Options{NoTime: true}, func(t *testing.T, w *world) { // answers to puts tell no mod time, and no look precedes them
		a, k := w.holder(t, Shared, func(o *Options) { o.Look = DefaultTTL }) // and none comes in between
		time.Sleep(31 * time.Second)
		a.hooks.Before(inTurn(first("put", "", func(r hookstore.Request) error {
			a.hooks.Before(outage)
			time.Sleep(7 * time.Second)
			w.put(r.Key, r.Body)
			return errOutage
		}), outage))
		<-k.Context().Done()
		a.hooks.Before(nil)
		mustResume(t, k)
		w.leavesNothing(k)
	})
}

// TestNoResumeAfterARefreshThatAPauseDelayed: so it is if the machine was paused by its hypervisor,
// whose clocks show the refresh as one that came soon. The store's show it.
func TestNoResumeAfterARefreshThatAPauseDelayed(t *testing.T) {
	untimed := lacking
	untimed.NoTime, untimed.Precision = true, time.Second
	kinds{"lacked": lacking, "no time": untimed}.holders(t, func(t *testing.T, w *world, a *machine, k *Lock) {
		went := a.pausedInRefresh(w, k, 150*time.Second)
		a.hooks.Before(func(ctx context.Context, r hookstore.Request) error {
			if time.Now().Before(went) && r.Key == k.Key() { // on its way
				return nil
			}
			return errOutage
		})
		w.passed(t, Exclusive, went)
		<-k.Context().Done()
		a.hooks.Before(nil)
		mustNotResume(t, k)
	})
}

// TestResumeAgainstAcquire races a resume with an acquire, each request of both taking a
// different time. They must never both succeed, nor harm the other one's lock.
func TestResumeAgainstAcquire(t *testing.T) {
	stores.modes(t, func(t *testing.T, w *world, mode Mode) {
		for head := -1500 * time.Millisecond; head <= 1500*time.Millisecond; head += rounds.Fewer(50*time.Millisecond, 150*time.Millisecond) {
			a, k := w.holder(t, mode)
			b := w.machine()
			a.lose(t, k)
			time.Sleep(10 * time.Second)
			a.hooks.Before(slow("", "", 130*time.Millisecond))
			b.hooks.Before(slow("", "", 170*time.Millisecond))
			var other *Lock
			done := make(chan struct{})
			time.AfterFunc(max(head, 0), func() {
				defer close(done)
				other, _ = b.TryExclusive(context.Background(), "prune")
			})
			time.Sleep(max(-head, 0))
			resumed := k.Resume(t.Context()) == nil
			<-done
			time.Sleep(2 * time.Minute)
			if resumed {
				assert.That(t, other == nil, "head start %v: resumed and acquired", head)
				lives(t, k)
			}
			if other != nil {
				w.lasts(other)
			}
			k.Release(t.Context())
			w.breakAll()
		}
	})
}

// TestAcquirerYieldsToAResume: an acquirer doesn't outlast a holder that resumes its lock: the new flag is only acquiring,
// and the pointer has the state held.
func TestAcquirerYieldsToAResume(t *testing.T) {
	bothModes(t, memory.Options{}, func(t *testing.T, w *world, mode Mode) {
		a, k := w.holder(t, Exclusive)
		b := w.machine()
		a.outlives(t, k)
		time.Sleep(10 * time.Second) // the old flag is stale
		b.hooks.Before(slow("list", "", time.Second))
		p := b.wants(t, mode, 0)
		mustResume(t, k)
		<-p.done
		isAll(t, p.err, ErrHeld)
		w.leavesNothing(k)
	})
}

// TestSuspendAlone: if no other holder has entered, the lock is resumed. It was held until its deadline.
func TestSuspendAlone(t *testing.T) {
	stores.holders(t, func(t *testing.T, w *world, a *machine, k *Lock) {
		since := a.clock.Elapsed()
		a.clock.Stop(40 * time.Second)
		time.Sleep(42 * time.Second)
		lives(t, k)
		a.clock.Stop(8 * time.Hour)
		<-k.Context().Done()
		e := a.seen()[len(a.seen())-1]
		assert.That(t, e.Kind == EventLost && e.Held == k.lease.Deadline()-since, "%s: held for %v", e.Kind, e.Held)
		mustResume(t, k)
		w.leavesNothing(k)
	})
}

// TestReleasedWhileItIsResumed: a release at any moment of a resume leaves no lock and no object.
func TestReleasedWhileItIsResumed(t *testing.T) {
	stores.modes(t, func(t *testing.T, w *world, mode Mode) {
		for after := time.Millisecond; after < time.Second; after += 33 * time.Millisecond {
			a, k := w.holder(t, mode)
			a.lose(t, k)
			a.hooks.Before(slow("", "", 100*time.Millisecond))
			resumed := make(chan error, 1)
			var released atomic.Bool
			go func() {
				err := k.Resume(t.Context())
				assert.That(t, err != nil || !released.Load(), "resumed after Release was called, after %v", after)
				resumed <- err
			}()
			time.Sleep(after)
			released.Store(true)
			mustRelease(t, k)
			synctest.Wait()
			assert.That(t, !alive(k) && k.Left() == 0 && len(resumed) == 1, "after its release, %v later: not ended", after)
			err := <-resumed
			assert.That(t, err == nil || errors.Is(err, ErrReleased) || errors.Is(err, ErrLost), "released after %v: %v", after, err)
			isAll(t, k.Resume(t.Context()), ErrReleased)
			a.hooks.Before(nil)
			time.Sleep(2 * time.Minute)
			w.empty()
		}
	})
}

// TestResumeAllowsForRoundedTimes: if a refresh was applied when the flag could already be
// reaped, the lock isn't resumed, however the store rounds its times.
func TestResumeAllowsForRoundedTimes(t *testing.T) {
	for late := range 10 {
		for phase := range 10 {
			bubble(t, memory.Options{Precision: time.Second}, func(t *testing.T, w *world) {
				time.Sleep(time.Duration(phase) * 100 * time.Millisecond)
				a, k := w.holder(t, Shared)
				reapable := time.Now().Add(DefaultTTL)
				var refreshed atomic.Value // the last refresh of the flag, which fails
				a.hooks.Before(inTurn(on("put", k.Key(), func(r hookstore.Request) { refreshed.Store(r.Body) }), outage))
				time.Sleep(time.Until(reapable) + time.Duration(late)*100*time.Millisecond + time.Millisecond)
				w.put(k.Key(), refreshed.Load().([]byte))
				a.hooks.Before(nil)
				time.Sleep(time.Duration(late+phase) * 77 * time.Millisecond)
				mustNotResume(t, k)
			})
		}
	}
}

// TestNoResumeWhenPassedMeanwhile: a lock isn't resumed if another holder entered and left during the resume.
func TestNoResumeWhenPassedMeanwhile(t *testing.T) {
	stores.modes(t, func(t *testing.T, w *world, mode Mode) {
		b := w.machine()
		a, k := w.holder(t, mode)
		a.lose(t, k)
		time.Sleep(10 * time.Second)
		came, gate, gone := make(chan struct{}), make(chan struct{}), make(chan bool, 1)
		b.hooks.Before(first("delete", k.Key(), func(hookstore.Request) error { close(came); <-gate; return nil }))
		go func() {
			shortly := func(context.Context) error { time.Sleep(300 * time.Millisecond); return nil }
			gone <- b.Do(context.Background(), Exclusive, "prune", shortly, WithWait(0)) == nil
		}()
		select {
		case <-came: // it has looked, and is about to delete the stale flag
		case in := <-gone: // it has watched it in vain
			gone <- in
		}
		a.hooks.Before(first("list", allLocks, func(hookstore.Request) error {
			close(gate)
			time.Sleep(10 * time.Millisecond)
			return nil
		}))
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		err := k.Resume(ctx)
		assert.That(t, !<-gone || err != nil, "resumed although a prune has been in between")
		equal(t, "it is held", alive(k), err == nil)
	})
}

// TestResumeNeedsLockExclusive: a lock isn't resumed without its lock.exclusive, which a break deletes.
func TestResumeNeedsLockExclusive(t *testing.T) {
	holding(t, memory.Options{}, Exclusive, func(t *testing.T, w *world, a *machine, k *Lock) {
		a.outlives(t, k)
		a.hooks.After(firstAnswered("put", pointer, func(hookstore.Request) { w.delete(pointer) }))
		mustNotResume(t, k)
	})
}

// TestResumesAtOnceGiveOneLock: of two concurrent Resumes of one lost lock, one succeeds, and the other one
// returns an error at once.
func TestResumesAtOnceGiveOneLock(t *testing.T) {
	stores.holders(t, func(t *testing.T, w *world, a *machine, k *Lock) {
		a.lose(t, k)
		a.hooks.Before(takesASecond)
		resumed := make(chan error, 2)
		for range 2 {
			go func() { resumed <- k.Resume(context.Background()) }()
		}
		assert.That(t, <-resumed != nil && <-resumed == nil, "not one of two has resumed")
		lives(t, k)
		w.leavesNothing(k)
	})
}

// TestHeldLockIsNotResumed: a Resume of a lock that is held, or that was resumed by another goroutine, changes
// nothing.
func TestHeldLockIsNotResumed(t *testing.T) {
	stores.holders(t, func(t *testing.T, w *world, a *machine, k *Lock) {
		for range 2 {
			work, id := k.Context(), k.ID()
			if err := k.Resume(t.Context()); err == nil || errors.Is(err, ErrLost) || work.Err() != nil || k.Context() != work || k.ID() != id {
				t.Errorf("%v, %v", err, work.Err())
			}
			a.outlives(t, k)
			mustResume(t, k)
		}
		w.leavesNothing(k)
	})
}

// TestResumeTriesAgain: a resume tries again after an attempt that failed after its look.
func TestResumeTriesAgain(t *testing.T) {
	stores.holders(t, func(t *testing.T, w *world, a *machine, k *Lock) {
		a.lose(t, k)
		a.hooks.Before(fails("list", allLocks, errOutage))
		time.AfterFunc(30*time.Second, func() { a.hooks.Before(nil) })
		mustResume(t, k)
		time.Sleep(5 * time.Minute)
		lives(t, k)
		w.leavesNothing(k)
	})
}

// TestReleaseEndsAResume: a release doesn't wait for a resume that waits for the store.
func TestReleaseEndsAResume(t *testing.T) {
	stores.holders(t, func(t *testing.T, w *world, a *machine, k *Lock) {
		a.lose(t, k)
		done := make(chan error, 1)
		go func() { done <- k.Resume(t.Context()) }()
		time.Sleep(time.Hour)
		start := time.Now()
		_ = k.Release(t.Context()) // the store is away
		isAll(t, <-done, ErrReleased)
		took(t, start, 0, time.Minute)
	})
}

// TestReleaseAfterACancelledResumeLeavesNothing: a cancelled resume and a release leave no lock behind.
func TestReleaseAfterACancelledResumeLeavesNothing(t *testing.T) {
	holding(t, memory.Options{}, Exclusive, func(t *testing.T, w *world, a *machine, k *Lock) {
		a.lose(t, k)
		time.Sleep(20 * time.Second)
		ctx, cancel := context.WithCancel(t.Context())
		a.hooks.Before(on("list", allLocks, func(hookstore.Request) { cancel() }))
		isAll(t, k.Resume(ctx), context.Canceled)
		mustRelease(t, k)
		w.machine().takes(t, Exclusive)
	})
}
