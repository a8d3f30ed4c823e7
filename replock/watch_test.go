package replock

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/repolock/repolock/internal/clock"
	"github.com/repolock/repolock/internal/retry"
	"github.com/repolock/repolock/internal/test/assert"
	"github.com/repolock/repolock/internal/test/hookstore"
	"github.com/repolock/repolock/replock/internal/verdict"
	"github.com/repolock/repolock/replock/internal/wire"
	"github.com/repolock/repolock/store"
	"github.com/repolock/repolock/store/memory"
)

// TestBreakIsNoticedWithinALook: a holder notices a break within the interval of its looks, whatever the ttl.
func TestBreakIsNoticedWithinALook(t *testing.T) {
	for _, ttl := range []time.Duration{MinTTL, DefaultTTL, MaxTTL} {
		for _, look := range []time.Duration{0, 3 * time.Second} {
			for after := range 12 {
				stores.modes(t, func(t *testing.T, w *world, mode Mode) {
					a, k := w.holder(t, mode, func(o *Options) { o.TTL, o.Look = ttl, look })
					time.Sleep(time.Duration(after)*3*time.Second + 700*time.Millisecond) // and no refresh is sent
					w.breakAll()
					assert.Says(t, endsForGood(t, k, a.opts.Look), ErrLost, "by break-lock or by hand")
					w.leavesNothing(k)
				})
			}
		}
	}
}

// TestPausedMachine: a hypervisor pauses a machine for longer than the ttl, and the machine's clocks don't count
// it. The holder stops within a look after the pause, or at once if the wall clock is set. The reason of the
// loss names break-lock only if the lease lasted, by the store's clock.
func TestPausedMachine(t *testing.T) {
	const pause = 150 * time.Second
	for _, stepped := range yesNo {
		stores.holders(t, func(t *testing.T, w *world, a *machine, k *Lock) {
			time.Sleep(33 * time.Second)
			a.clock.pause(pause)
			w.passed(t, Exclusive, time.Now().Add(pause))
			if !alive(k) {
				t.Fatalf("lost by its own clocks: %v", k.Lost())
			}
			within := DefaultLook
			if stepped {
				a.clock.setSkew(pause)
				within = 500 * time.Millisecond
			}
			lost := endsForGood(t, k, within).Error()
			assert.That(t, w.timeless || !strings.Contains(lost, "break-lock") && strings.Contains(lost, "this machine stood still"), "%s", lost)
		})
	}
}

// passed makes another acquirer come and go while a machine is paused, and returns when the machine goes on.
func (w *world) passed(t *testing.T, mode Mode, went time.Time) {
	t.Helper()
	w.machine().untilFree(t, mode, time.Second)
	if !time.Now().Before(went) {
		t.Fatal("the other got in after the pause")
	}
	time.Sleep(time.Until(went))
}

// TestPausedMachineRefreshesAtOnce: after a pause an acquirer can pass the lock at any moment,
// so it isn't enough that a look finds the lock. The wall clock, once set, or the store's,
// shows the pause, also before the first look at the held lock.
func TestPausedMachineRefreshesAtOnce(t *testing.T) {
	const pause = 5 * time.Second // more than margin, and a second that the store rounds off
	for _, held := range []time.Duration{5 * time.Second, 12 * time.Second} {
		for _, stepped := range yesNo {
			holding(t, memory.Options{Precision: time.Second}, Shared, func(t *testing.T, w *world, a *machine, k *Lock) {
				time.Sleep(held)
				a.stands(pause, stepped)
				before := a.saw(EventRefreshed)
				// It is tried again, whatever the look then finds.
				a.hooks.Before(first("put", "", func(hookstore.Request) error { return errOutage }))
				time.Sleep(DefaultLook + 2*firstPoll)
				assert.That(t, a.saw(EventRefreshed) != before, "paused %v after it was acquired, stepped %t: not refreshed", held, stepped)
			})
		}
	}
}

// stands pauses the machine. Its wall clock is perhaps set right when it goes on.
func (m *machine) stands(pause time.Duration, stepped bool) {
	m.clock.pause(pause)
	time.Sleep(pause)
	if stepped {
		m.clock.setSkew(pause)
	}
}

// pausedInRefresh pauses the machine while the put of a lock's next refresh, which comes after a look, is on
// its way. The put is applied when the machine goes on. pausedInRefresh returns that time.
func (m *machine) pausedInRefresh(w *world, k *Lock, pause time.Duration) (went time.Time) {
	paused := make(chan time.Time)
	m.hooks.Before(first("put", k.Key(), func(r hookstore.Request) error {
		m.clock.pause(pause)
		paused <- time.Now().Add(pause)
		time.Sleep(pause)
		w.put(r.Key, r.Body)
		return nil
	}))
	return <-paused
}

// TestPausedBetweenLookAndPut: a machine is paused while the put of a refresh is on its way, after the look.
// Another holder comes and goes. Then the put is applied and puts the flag back, and later looks find it in its
// place. Its time, after the end of the lease, shows what happened.
func TestPausedBetweenLookAndPut(t *testing.T) {
	paged := lacking
	paged.PageSize = 1 // the flag of an exclusive lock is on a later one
	for _, c := range []struct {
		mode, passes Mode
		opts         memory.Options
		crowded      bool
	}{
		{Shared, Exclusive, lacking, false}, {Shared, Exclusive, lacking, true},
		{Exclusive, Exclusive, lacking, false}, {Exclusive, Shared, lacking, false}, {Exclusive, Shared, paged, false},
	} {
		bubble(t, c.opts, func(t *testing.T, w *world) {
			if c.crowded {
				w.emptied(crowd + 1) // more locks than a look may list
			}
			a, k := w.holder(t, c.mode)
			time.Sleep(25 * time.Second)
			w.passed(t, c.passes, a.pausedInRefresh(w, k, 150*time.Second))
			time.Sleep(time.Millisecond)
			endsForGood(t, k, DefaultLook)
		})
	}
}

// TestStoodStillWhileAcquiring: an acquirer whose machine is paused between its put and its first look, or between
// two looks, isn't granted the lock by its old flag, but by another one.
func TestStoodStillWhileAcquiring(t *testing.T) {
	const pause = 5 * time.Second
	for _, first := range []int32{1, 2} {
		bubble(t, lacking, func(t *testing.T, w *world) {
			a := w.machine()
			var lists atomic.Int32
			var each atomic.Bool
			a.hooks.Before(on("list", "", func(hookstore.Request) {
				if n := lists.Add(1); n == first || each.Load() && n%2 == first%2 {
					a.stands(pause, false)
				}
			}))
			k := a.takes(t, Exclusive)
			_, o, err := w.mem.Get(t.Context(), k.Key(), wire.MaxBody)
			age := time.Since(o.ModTime)
			assert.That(t, err == nil && age < pause, "the lock was granted when its flag was %v old", age)
			k.Release(t.Context())

			lists.Store(0)
			each.Store(true)
			assert.Says(t, a.fails(t, Exclusive, ErrUnsure), ErrUnsure, "this machine stood still")
		})
	}
}

// TestSlowAnswersAreNoPause: the time for which an answer is on its way isn't taken for a pause of the machine.
func TestSlowAnswersAreNoPause(t *testing.T) {
	slow := func(hookstore.Request) { time.Sleep(5 * time.Second) }
	for name, late := range map[string]hookstore.After{"puts": answered("put", "", slow), "the first list": firstAnswered("list", "", slow)} {
		sub(t, name, lacking, func(t *testing.T, w *world) {
			a := w.machine()
			a.hooks.After(late)
			a.takes(t, Exclusive)
			a.sent(t, between{"put": {2, 2}, "list": {2, 2}})
		})
	}
}

// TestClocksApart: a store whose answers have another clock than its mod times makes no acquire start again.
func TestClocksApart(t *testing.T) {
	do(t, func(t *testing.T, w *world) {
		a := w.machine()
		a.Locker.store = ahead{a.Locker.store}
		k := a.takes(t, Shared)
		a.sent(t, between{"list": {1, 1}})
		mustRelease(t, k)
	})
}

// ahead is a store behind a proxy whose clock is a minute ahead.
type ahead struct{ store.Store }

func (s ahead) Put(ctx context.Context, key string, body []byte, opts store.PutOptions) (store.Object, error) {
	o, err := s.Store.Put(ctx, key, body, opts)
	o.Now = o.Now.Add(time.Minute)
	return o, err
}

func (s ahead) List(ctx context.Context, prefix, cursor string) (store.Page, error) {
	page, err := s.Store.List(ctx, prefix, cursor)
	page.Now = page.Now.Add(time.Minute)
	return page, err
}

// TestRefreshIsWhole: a Refresh that couldn't look at lock.exclusive, which was broken, returns an error.
func TestRefreshIsWhole(t *testing.T) {
	bubble(t, lacking, func(t *testing.T, w *world) {
		a := w.machine()
		a.hooks.Before(slow("", pointer, 5*time.Millisecond)) // so that its puts are sent a little later
		k := a.takes(t, Exclusive)
		time.Sleep(35 * time.Second)
		w.delete(pointer)
		a.hooks.Before(fails("", pointer, errOutage))
		isAll(t, k.Refresh(t.Context()), errOutage)
	})
}

// TestPassedByOneWhoHoldsIsLostAtOnce: a machine was paused, a late put has put its flag back, and it finds
// another holder. It loses its lock at once. Only a client that has just come gets the time to withdraw.
func TestPassedByOneWhoHoldsIsLostAtOnce(t *testing.T) {
	// Within the other's interval, so that in some cases it has refreshed its lock just now.
	for pause := 150 * time.Second; pause < 180*time.Second; pause += 2 * time.Second {
		holding(t, memory.Options{IfAbsent: memory.Lacked, IfMatch: memory.Lacked, NoTime: true}, Exclusive, func(t *testing.T, w *world, a *machine, k *Lock) {
			time.Sleep(25 * time.Second)
			went := a.pausedInRefresh(w, k, pause)
			w.machine().takes(t, Shared, WithWait(Forever))
			time.Sleep(time.Until(went) + time.Millisecond)
			a.clock.setSkew(pause)
			ends(t, k, 2*time.Second)
		})
	}
}

// TestPassedWhileRefreshed: another acquirer has found the flag of a paused machine stale, and its delete
// comes just after the machine's refresh. Then the machine looks for others and sees an acquirer that could
// be about to withdraw. It ends at the first look without its own flag.
func TestPassedWhileRefreshed(t *testing.T) {
	for _, pageSize := range []int{0, 1} {
		for _, late := range []time.Duration{250 * time.Millisecond, time.Second} {
			holding(t, memory.Options{PageSize: pageSize}, Shared, func(t *testing.T, w *world, a *machine, k *Lock) {
				time.Sleep(14 * time.Second)
				const pause = 80 * time.Second
				go a.stands(pause, true)
				time.Sleep(pause - 100*time.Millisecond)
				refreshed := make(chan struct{})
				a.hooks.After(firstAnswered("put", k.Key(), func(hookstore.Request) { close(refreshed) }))
				b := w.machine()
				b.hooks.Before(on("delete", k.Key(), func(hookstore.Request) {
					<-refreshed
					time.Sleep(late)
				}))
				b.takes(t, Exclusive)
				a.hooks.Count()
				assert.Says(t, endsForGood(t, k, 600*time.Millisecond), ErrLost, "another client deleted the lock")
				if pageSize == 0 { // it ends at the page without its flag
					a.sent(t, between{"list": {1, 2}, "get": {0, 1}})
				}
			})
		}
	}
}

// TestPassedBetweenPages: the delete comes while the look after the refresh reads the pages behind our
// flag, and the other holder is gone before the last of them. The last look at our flag finds it.
func TestPassedBetweenPages(t *testing.T) {
	holding(t, memory.Options{PageSize: 1}, Exclusive, func(t *testing.T, w *world, a *machine, k *Lock) {
		time.Sleep(14 * time.Second)
		const pause = 80 * time.Second
		go a.stands(pause, true)
		time.Sleep(pause - time.Second)
		shown, gone := make(chan struct{}), make(chan struct{})
		a.hooks.After(firstAnswered("put", k.Key(), func(hookstore.Request) {
			pages := 0
			a.hooks.Before(on("list", allLocks, func(hookstore.Request) {
				if pages++; pages == 3 { // behind those with lock.exclusive and our flag
					close(shown)
					<-gone
				}
			}))
		}))
		b := w.machine()
		b.hooks.Before(on("delete", k.Key(), func(hookstore.Request) { <-shown }))
		b.takes(t, Shared).Release(t.Context())
		close(gone)
		endsForGood(t, k, time.Second)
	})
}

// TestForeignBehindMany: an exclusive holder finds the shared lock of another client behind many flags of this protocol.
func TestForeignBehindMany(t *testing.T) {
	holding(t, memory.Options{}, Exclusive, func(t *testing.T, w *world, _ *machine, k *Lock) {
		w.flags(maxReported + 1)
		w.put("index/lock.shared/late", foreign(time.Now(), true))
		endsForGood(t, k, 2*DefaultLook)
	})
}

// TestVanishedIsNoConflict: the ticket of an earlier version that is deleted while a holder whose clocks have parted
// reads it is no conflict.
func TestVanishedIsNoConflict(t *testing.T) {
	holding(t, memory.Options{}, Exclusive, func(t *testing.T, w *world, a *machine, k *Lock) {
		wait := w.earlier().wants(t, Exclusive, Forever)
		time.Sleep(15 * time.Second) // its ticket is too old to be withdrawn as a flag is
		a.hooks.Before(on("get", w.tickets()[0], func(hookstore.Request) { wait.ends(nil) }))
		a.clock.setSkew(10 * time.Second)
		time.Sleep(DefaultLook)
		equal(t, "tickets left", len(w.tickets()), 0)
		lives(t, k)
	})
}

// TestPausedBeyondTheLease: on a store that reports its time, a machine that stood still beyond its lease puts nothing
// back without If-Match: an acquirer that is about to pass could delete the flag between the look and the put of the
// refresh, and be gone before the next look. The machine puts a second flag first. It keeps the lock if no other holder
// has passed, and loses it for good if one deletes the flag meanwhile, or the second one.
func TestPausedBeyondTheLease(t *testing.T) {
	for _, stepped := range yesNo {
		for _, passed := range []string{"", "first", "second"} {
			bothHolders(t, lacking, func(t *testing.T, w *world, a *machine, k *Lock) {
				time.Sleep(14 * time.Second)
				a.stands(70*time.Second, stepped)
				var puts notes[string]
				a.hooks.Before(on("put", "", func(r hookstore.Request) {
					puts.add(r.Key)
					if passed == "first" {
						w.delete(k.Key())
					}
					if all := puts.got(); passed == "second" && r.Key == k.Key() {
						w.delete(all[0])
					}
				}))
				time.Sleep(DefaultLook)
				all := puts.got()
				assert.That(t, len(all) > 0 && all[0] != k.Key() && all[0] != pointer, "stepped %t: refreshed first: %v", stepped, all)
				if passed == "" {
					lives(t, k)
					n := len(w.keys())
					time.Sleep(secondStays + DefaultLook)
					lives(t, k)
					assert.That(t, n == len(w.keys())+1 && len(w.keys()) == int(k.Mode()), "stored: %d, then %v", n, w.keys())
					w.leavesNothing(k)
					return
				}
				assert.That(t, passed == "second" || len(all) == 1, "stepped %t: put %v", stepped, all)
				endsForGood(t, k, time.Second)
				mustRelease(t, k)
				keys := w.keys()
				assert.That(t, len(keys) == 0 || len(keys) == 1 && keys[0] == pointer, "stored: %v", keys)
			})
		}
	}
}

// TestRefreshedBeyondTheLease: a refresh after a pause that was sent within the lease can be applied after
// its end, and another holder can have come and gone before. Without If-Match the lock is lost.
func TestRefreshedBeyondTheLease(t *testing.T) {
	holding(t, lacking, Shared, func(t *testing.T, w *world, a *machine, k *Lock) {
		time.Sleep(14 * time.Second)
		a.stands(43200*time.Millisecond, true) // until within the lease, less margin
		a.hooks.Count()
		a.hooks.Before(slow("put", k.Key(), 900*time.Millisecond))
		endsForGood(t, k, 5*time.Second)
		a.sent(t, between{"put": {1, many}})
	})
}

// TestRefreshedWithinTheLease: a refresh after a pause was applied in time, and the look after it failed for
// so long that the lease before it is over. The lock is kept, also without If-Match, unless the refresh was
// applied in the last 2 s, which the store's rounding can hide.
func TestRefreshedWithinTheLease(t *testing.T) {
	for pause, kept := range map[time.Duration]bool{42 * time.Second: true, 43200 * time.Millisecond: false} {
		holding(t, lacking, Shared, func(t *testing.T, w *world, a *machine, k *Lock) {
			time.Sleep(14 * time.Second)
			a.stands(pause, true)
			before := a.saw(EventRefreshed)
			a.hooks.Before(slow("put", k.Key(), 900*time.Millisecond))
			a.hooks.After(firstAnswered("put", k.Key(), func(hookstore.Request) { a.hooks.Before(fails("list", "", errOutage)) }))
			time.Sleep(15 * time.Second)
			assert.That(t, a.saw(EventRefreshed) > before, "paused for %v: not refreshed", pause)
			a.hooks.Before(nil)
			time.Sleep(DefaultLook)
			err := k.Check(t.Context())
			assert.That(t, (err == nil) == kept, "paused for %v: %v", pause, err)
			assert.That(t, !kept || len(w.keys()) == 1, "paused for %v: a second flag in %q", pause, w.keys())
		})
	}
}

// TestShortPauseIsNoLoss: a machine that stood still for a moment keeps its lock, also without If-Match. It needs no
// second flag for that, because its lease hasn't ended.
func TestShortPauseIsNoLoss(t *testing.T) {
	bothHolders(t, lacking, func(t *testing.T, w *world, a *machine, k *Lock) {
		time.Sleep(5 * time.Minute)
		before := len(w.keys())
		a.stands(5*time.Second, true)
		time.Sleep(DefaultLook)
		lives(t, k)
		equal(t, "objects", len(w.keys()), before)
	})
}

// TestPausesDontAddUp: two pauses, of which each is shorter than the error of a store's clock, aren't taken for a longer
// one.
func TestPausesDontAddUp(t *testing.T) {
	bothHolders(t, lacking, func(t *testing.T, w *world, a *machine, k *Lock) {
		before := a.saw(EventRefreshed)
		for a.saw(EventRefreshed) == before {
			time.Sleep(time.Second)
		}
		before = a.saw(EventRefreshed)
		for range 2 {
			a.stands(3*verdict.Margin/4, true)
			time.Sleep(DefaultLook + time.Second)
		}
		equal(t, "refreshes", a.saw(EventRefreshed), before)
		lives(t, k)
	})
}

// TestSeenOnceReassured: after the clocks have parted neither a refresh nor a look that fails shows that the
// lock was seen. A look that has found no other holder does, as of its begin.
func TestSeenOnceReassured(t *testing.T) {
	holding(t, memory.Options{}, Shared, func(t *testing.T, w *world, a *machine, k *Lock) {
		time.Sleep(5 * time.Second)
		a.hooks.Before(fails("list", "", errOutage))
		a.clock.setSkew(10 * time.Second)
		parted := a.clock.Elapsed()
		time.Sleep(time.Millisecond)
		assert.OK(t, k.Refresh(t.Context()))
		assert.That(t, k.lease.Seen().Elapsed <= parted, "seen after the clocks have parted, by a refresh alone")
		var puts notes[time.Duration]
		a.hooks.Before(inTurn(on("put", "", func(hookstore.Request) { puts.add(a.clock.Elapsed()) }), takesASecond))
		time.Sleep(DefaultLook)
		seen := k.lease.Seen().Elapsed
		assert.That(t, seen > parted && seen <= slices.Max(puts.got()), "seen %v after %v, refreshed at %v", seen, parted, puts.got())
	})
}

// TestPartedClocksAreLookedIntoSoon: after the clocks have parted the command is stopped until a look is answered. So
// the watch tries it twice a second, although it pauses for longer after other looks that failed. With this clock a
// watch wakes that often anyway. With the machine's own it sleeps as long as it is told.
func TestPartedClocksAreLookedIntoSoon(t *testing.T) {
	holding(t, memory.Options{}, Shared, func(t *testing.T, w *world, a *machine, k *Lock) {
		term := k.lease.Owner().(*term)
		due := func() time.Duration { return a.clock.Elapsed() + 8*time.Second }
		equal(t, "the pause", term.untilLook(due()), 8*time.Second)
		a.clock.setSkew(10 * time.Second)
		equal(t, "the pause after a step", term.untilLook(due()), clock.Tick)
	})
}

// TestLooksOutlastAnOutage: a lock with a long ttl is looked at again soon after a look that failed, and as
// often as before when an outage is over. A request that hangs is given up.
func TestLooksOutlastAnOutage(t *testing.T) {
	do(t, func(t *testing.T, w *world) {
		a, k := w.holder(t, Shared, func(o *Options) { o.TTL, o.Look = MaxTTL, time.Minute })
		a.hooks.Before(outage)
		a.hooks.Count()
		time.Sleep(20 * time.Second)
		a.sent(t, between{"list": {3, many}})
		time.Sleep(time.Hour)
		a.hooks.Before(nil)
		time.Sleep(a.opts.Look)
		a.sent(t, between{"list": {60, many}})
		a.hooks.Before(hangs("list", ""))
		time.Sleep(a.opts.Look)
		a.hooks.Before(nil)
		w.delete(k.Key())
		ends(t, k, a.opts.Look+maxAsk+retry.LastWords)
	})
}

// TestLooksOutlastALateExtension: looks go on if the deadline seems over just before a refresh that was answered in time
// extends it.
func TestLooksOutlastALateExtension(t *testing.T) {
	do(t, func(t *testing.T, w *world) {
		a := w.machine()
		refreshed := false
		a.earlier = func(time.Duration) time.Duration { // called between the answer and the extension
			if refreshed {
				time.Sleep(26 * time.Second)
			}
			refreshed = !refreshed
			return 0
		}
		k := a.takes(t, Shared)
		time.Sleep(61 * time.Second) // and the next refresh is 29 s away
		lives(t, k)
		w.breakAll()
		endsForGood(t, k, DefaultLook)
	})
}

// TestOtherClientsConflictIsALoss: a look detects another client's conflicting lock, unless that is withdrawn soon.
func TestOtherClientsConflictIsALoss(t *testing.T) {
	stores.modes(t, func(t *testing.T, w *world, mode Mode) {
		k := w.machine().takes(t, mode)
		time.Sleep(5 * time.Second)
		for range 4 { // withdrawn, as soon as they have looked
			w.comesBesideFor(mode, 2500*time.Millisecond)
			time.Sleep(4300 * time.Millisecond)
		}
		lives(t, k)
		w.comesBeside(mode)
		lost := endsForGood(t, k, DefaultLook+verdict.Transient)
		assert.That(t, strings.Contains(lost.Error(), "laptop (pid 4711)"), "%v", lost)
	})
}

// TestConflictIsNotDatedByRoundedTimes: on a store that rounds times, a lock that is withdrawn within 3 s is no loss.
func TestConflictIsNotDatedByRoundedTimes(t *testing.T) {
	bothModes(t, memory.Options{Precision: time.Second}, func(t *testing.T, w *world, mode Mode) {
		k := w.machine().takes(t, mode)
		for range 50 {
			now := time.Now()
			time.Sleep(now.Truncate(time.Second).Add(5*time.Second - time.Millisecond).Sub(now))
			w.comesBesideFor(mode, 2900*time.Millisecond)
		}
		lives(t, k)
	})
}

// TestLockThatIsGoneIsForgotten: a client of the original protocol that tries again and again, and
// withdraws each time, never holds: each of its tries is another lock, not the first one refreshed.
func TestLockThatIsGoneIsForgotten(t *testing.T) {
	stores.modes(t, func(t *testing.T, w *world, mode Mode) {
		k := w.machine().takes(t, mode)
		for range 50 {
			time.Sleep(47 * time.Second)
			w.comesBesideFor(mode, time.Second)
		}
		lives(t, k)
		k.Release(t.Context())
		others := &k.lease.Owner().(*term).others
		others.turn <- struct{}{}
		assert.That(t, len(others.memory) <= 1, "remembers %d", len(others.memory))
	})
}

// emptied leaves n flags that were emptied.
func (w *world) emptied(n int) {
	for i := range n {
		w.put(fmt.Sprintf("index/lock.shared/%04d", i), nil)
	}
}

// TestLookInACrowd: among many locks, a shared holder's look lists only its own, and notices that its flag was replaced.
func TestLookInACrowd(t *testing.T) {
	holding(t, memory.Options{}, Shared, func(t *testing.T, w *world, a *machine, k *Lock) {
		w.emptied(crowd + 1)
		var all atomic.Int32
		a.hooks.After(answered("list", allLocks, func(hookstore.Request) { all.Add(1) }))
		time.Sleep(5*time.Minute + time.Second) // and no refresh
		assert.That(t, alive(k) && all.Load() == 1, "lost: %v; all locks were listed %d times", k.Lost(), all.Load())
		w.put(k.Key(), bytes.Repeat([]byte("x"), wire.MaxBody+1))
		endsForGood(t, k, DefaultLook+verdict.Transient)
	})
}

// TestBrokenLockStaysBroken: a refresh puts no deleted flag back, also on a server that creates one with If-Match.
func TestBrokenLockStaysBroken(t *testing.T) {
	for held := range 8 {
		bothModes(t, creating, func(t *testing.T, w *world, mode Mode) {
			a, b := w.machine(func(o *Options) { o.Look = DefaultTTL }), w.machine()
			a.opts.Look = time.Hour // so that a refresh comes first
			k := a.takes(t, mode)
			time.Sleep(time.Duration(held) * 17 * time.Second)
			w.breakAll()
			prune := b.takes(t, Exclusive)
			ends(t, k, 31*time.Second)
			time.Sleep(91 * time.Second)
			lives(t, prune)
			prune.Release(t.Context())
			w.leavesNothing(k)
		})
	}
}

// TestIfMatchIsProvenOnAMissingKeyToo: a put with If-Match on a missing key is tried out once, and leaves nothing.
func TestIfMatchIsProvenOnAMissingKeyToo(t *testing.T) {
	for name, c := range map[string]struct {
		opts  memory.Options
		holds bool
	}{"claimed": {claiming, true}, "creates": {creating, false}, "ignored": {ignoring, false}} {
		sub(t, name, c.opts, func(t *testing.T, w *world) {
			a, k := w.holder(t, Shared)
			time.Sleep(31 * time.Second)
			got := &a.conditions.match
			assert.That(t, got.holds() == c.holds && got.fails() != c.holds, "holds %t, fails %t", got.holds(), got.fails())
			w.stores(k.Key())
			a.hooks.Count()
			assert.OK(t, k.Refresh(t.Context()))
			a.sent(t, between{"put": {1, 1}, "list": {1, 1}})
			w.leavesNothing(k)
		})
	}
}

// TestProofThatFailsCostsNoRefresh: if a server refuses the right ETag, or fails on the condition or hangs,
// for a missing key or for each, its If-Match isn't relied on. That costs few tries and no refresh.
func TestProofThatFailsCostsNoRefresh(t *testing.T) {
	for name, c := range map[string]struct {
		answer  error // none: it hangs
		missing bool  // the answer to puts of missing keys alone
		tries   int32
	}{
		"refuses the right one": {store.ErrPrecondition, false, 3},
		"fails":                 {errOutage, false, 2 * maxProofs},
		"hangs":                 {nil, false, 2 * maxProofs},
		"fails for missing":     {errOutage, true, maxProofs},
	} {
		sub(t, name, claiming, func(t *testing.T, w *world) {
			a, k := w.holder(t, Shared)
			var tried atomic.Int32
			a.hooks.Before(func(ctx context.Context, r hookstore.Request) error {
				if r.Op != "put" || r.Opts.IfMatch == "" || c.missing && r.Key == k.Key() {
					return nil
				}
				tried.Add(1)
				if c.answer == nil {
					<-ctx.Done()
					return ctx.Err()
				}
				return c.answer
			})
			time.Sleep(5 * time.Minute)
			lives(t, k)
			assert.That(t, tried.Load() == c.tries && a.saw(EventRefreshFailed) == 0 && a.conditions.match.fails(),
				"%d tries, %d failures, If-Match is refuted: %t", tried.Load(), a.saw(EventRefreshFailed), a.conditions.match.fails())
			refreshed := a.saw(EventRefreshed)
			assert.That(t, refreshed >= 9, "refreshed %d times in five minutes", refreshed)
		})
	}
}

// TestBrokenDuringASlowProof: a lock that is broken while a proof of If-Match has no answer isn't put back by the refresh
// that waits for the proof.
func TestBrokenDuringASlowProof(t *testing.T) {
	holding(t, claiming, Shared, func(t *testing.T, w *world, a *machine, k *Lock) {
		a.hooks.Before(func(_ context.Context, r hookstore.Request) error {
			if r.Op == "put" && r.Key != k.Key() { // the proof's, with a missing key
				w.delete(k.Key())
				time.Sleep(2 * time.Second)
				return errOutage
			}
			return nil
		})
		time.Sleep(30*time.Second + 3*time.Second)
		assert.That(t, !alive(k), "it was put back, and is held")
		w.empty()
	})
}

// TestProofLeavesNothing: an object that a proof has made is removed, when the lock is released at the latest.
func TestProofLeavesNothing(t *testing.T) {
	holding(t, creating, Shared, func(t *testing.T, w *world, a *machine, k *Lock) {
		a.hooks.After(func(ctx context.Context, r hookstore.Request, err error) error {
			if r.Op == "put" && r.Key != k.Key() { // the proof's, applied, and answered late
				<-ctx.Done()
				return ctx.Err()
			}
			return err
		})
		time.Sleep(31 * time.Second)
		n := len(w.keys())
		assert.That(t, n == 2, "stored: %v", w.keys())
		w.leavesNothing(k)
	})
}

// TestLateAcquireStartsAgain: the rest of the lease must suffice for three refreshes.
func TestLateAcquireStartsAgain(t *testing.T) {
	bubble(t, lacking, func(t *testing.T, w *world) {
		a := w.machine()
		for left, want := range map[time.Duration]error{6100 * time.Millisecond: nil, 5900 * time.Millisecond: errLate, -time.Second: errLate} {
			tr := a.try(Shared)
			tr.trips.put.note(time.Second)
			tr.trips.put.note(time.Minute) // a single slow answer says nothing
			tr.trips.list.note(time.Second)
			tr.deadline = a.clock.Elapsed() + left
			isAll(t, a.holdable(tr), want)
		}
	})
}

// TestClaimLooksTwice: without conditions a lock.exclusive that was read as stale isn't
// overwritten if a client of the original protocol has taken it over since. With or without conditions, an
// acquirer that was stopped after that look doesn't harm a later holder of ours.
func TestClaimLooksTwice(t *testing.T) {
	threeKinds.each(t, func(t *testing.T, w *world) {
		a := w.afterStalePointer()
		var another []byte
		a.hooks.After(firstAnswered("get", pointer, func(hookstore.Request) {
			another = foreign(time.Now(), false)
			w.put(pointer, another)
		}))
		a.refused(t, Exclusive)
		w.has(pointer, another)
	})
	threeKinds.each(t, func(t *testing.T, w *world) {
		a, b := w.afterStalePointer(), w.machine()
		var other *Lock
		a.hooks.After(firstAnswered("get", pointer, func(hookstore.Request) {
			w.skew.Add(int64(2 * time.Minute))
			a.clock.jump(2 * time.Minute)
			b.clock.jump(2 * time.Minute)
			b.clock.setSkew(2 * time.Minute)
			other = b.takes(t, Exclusive)
		}))
		_, _ = a.lock(t.Context(), Exclusive, "x")
		w.lasts(other)
	})
}

// afterStalePointer returns a machine that finds another client's stale lock.exclusive.
func (w *world) afterStalePointer() *machine {
	w.put(pointer, foreign(time.Now(), false))
	time.Sleep(3 * time.Minute)
	return w.machine()
}

// TestHalfARefreshIsKept: an object that was renewed isn't renewed again because the other one
// wasn't, unless a caller asks for a refresh. The lock wasn't seen whole by that.
func TestHalfARefreshIsKept(t *testing.T) {
	stores.each(t, func(t *testing.T, w *world) {
		a, k := w.holder(t, Exclusive, func(o *Options) { o.Look = DefaultTTL })
		time.Sleep(29 * time.Second)
		start := a.clock.Elapsed()
		var flags atomic.Int32
		until := start + 15*time.Second
		a.hooks.Before(func(_ context.Context, r hookstore.Request) error {
			switch {
			case r.Op == "put" && r.Key == k.Key() && r.Opts.IfMatch != wrongETag:
				flags.Add(1)
			case r.Op == "put" && r.Key == pointer && a.clock.Elapsed() < until:
				return errOutage
			}
			return nil
		})
		time.Sleep(20 * time.Second)
		assert.That(t, flags.Load() == 1 && alive(k) && k.lease.Seen().Elapsed < start,
			"the flag was put %d times; lost: %v; seen %v after the start", flags.Load(), k.Lost(), k.lease.Seen().Elapsed-start)
		left := k.lease.Deadline() - start
		assert.That(t, left >= 55*time.Second && left <= 57*time.Second, "the deadline is %v later: it is the earlier of both", left)
		until = Forever
		for n := range int32(2) {
			err := k.Refresh(t.Context())
			assert.That(t, errors.Is(err, errOutage) && flags.Load() == n+2, "asked for: the flag was put %d times, %v", flags.Load(), err)
		}
	})
}

// TestWhatIsAcquiredIsHeld: on a slow store that works, an acquire is either refused, with the times, or held.
func TestWhatIsAcquiredIsHeld(t *testing.T) {
	for name, opts := range threeKinds {
		for _, mode := range []Mode{Shared, Exclusive} {
			for _, ttl := range []time.Duration{MinTTL, DefaultTTL, 10 * time.Minute} {
				var held, refused time.Duration
				for trip := ttl / 200; trip < min(ttl/6, 8*time.Second); trip += ttl / 200 {
					bubble(t, opts, func(t *testing.T, w *world) {
						a := w.machine(func(o *Options) { o.TTL, o.Look = ttl, min(DefaultLook, ttl) })
						a.delayed(trip)
						k, err := a.lock(t.Context(), mode, "x")
						if err == nil {
							held = trip
							time.Sleep(5 * ttl)
							lives(t, k)
							k.Release(t.Context())
							return
						}
						refused = cmp.Or(refused, trip)
						assert.That(t, errors.Is(err, ErrSlow) || errors.Is(err, context.DeadlineExceeded),
							"%s %s, ttl %v, %v a round trip: %v", name, mode, ttl, trip, err)
					})
				}
				t.Logf("%-8s %-9s ttl %-5v held up to %v, refused from %v", name, mode, ttl, held, refused)
			}
		}
	}
}

// TestAcquireThatIsCancelledLeavesNothing: nothing is left even if a put ignores the cancellation and comes later.
func TestAcquireThatIsCancelledLeavesNothing(t *testing.T) {
	stores.modes(t, func(t *testing.T, w *world, mode Mode) {
		for after := time.Duration(0); after < 2*time.Second; after += 50 * time.Millisecond {
			a := w.machine()
			a.hooks.Before(inTurn(slow("", "", 20*time.Millisecond), slow("put", "", 3*retry.LastWords)))
			ctx, cancel := context.WithCancel(t.Context())
			time.AfterFunc(after, cancel)
			k, err := a.lock(ctx, mode, "x")
			assert.That(t, err == nil || errors.Is(err, context.Canceled), "%v", err)
			if err == nil {
				k.Release(t.Context())
			}
			a.hooks.Before(nil)
			time.Sleep(5 * time.Second)
			w.empty()
		}
	})
}

// TestPassedLockIsNoConflict: a shared acquirer has watched the lock.exclusive of a client of the original
// protocol for its whole time and passed it. It is not taken for live later, whatever the clocks show.
func TestPassedLockIsNoConflict(t *testing.T) {
	for _, ahead := range []time.Duration{0, time.Hour, -time.Hour} {
		stores.each(t, func(t *testing.T, w *world) {
			w.put(pointer, foreign(time.Now().Add(ahead), false))
			k := w.machine().takes(t, Shared, WithWait(time.Hour))
			time.Sleep(5 * time.Minute)
			lives(t, k)
		})
	}
}

// TestRequestsPerHour counts the requests of a held lock: docs/evidence/benchmarks.md has the table.
func TestRequestsPerHour(t *testing.T) {
	for _, c := range []struct {
		opts      memory.Options
		mode      Mode
		ttl       time.Duration
		put, list int
	}{
		{memory.Options{}, Shared, time.Minute, 120, 380},
		{memory.Options{}, Exclusive, time.Minute, 242, 380},
		{memory.Options{}, Shared, 24 * time.Hour, 0, 380},
		{lacking, Shared, time.Minute, 120, 500},
		{lacking, Exclusive, time.Minute, 240, 620},
		{lacking, Exclusive, 24 * time.Hour, 2, 382},
	} {
		bubble(t, c.opts, func(t *testing.T, w *world) {
			a := w.machine(func(o *Options) { o.TTL = c.ttl })
			a.takes(t, c.mode)
			a.hooks.Count()
			time.Sleep(time.Hour)
			about := func(n int) [2]int { return [2]int{n - n/20, n + n/20} }
			a.sent(t, between{"put": about(c.put), "list": about(c.list), "get": {0, 0}, "delete": {0, 0}})
		})
	}
}
