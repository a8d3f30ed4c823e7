package replock

import (
	"context"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/repolock/repolock/internal/test/assert"
	"github.com/repolock/repolock/internal/test/hookstore"
	"github.com/repolock/repolock/internal/test/rounds"
	"github.com/repolock/repolock/replock/internal/wire"
	"github.com/repolock/repolock/store"
	"github.com/repolock/repolock/store/memory"
)

// stepped are stores whose clock a test sets: with and without If-Match, with a time on each page and without.
var stepped = kinds{
	"kept": {}, "claimed": claiming, "lacked": lacking, "ignored": ignoring, "second": {Precision: time.Second, NoTime: true},
	"kept, as on S3": {UntimedPuts: true, Precision: time.Second}, "lacked, untimed": {IfMatch: memory.Lacked, UntimedPuts: true},
	"lacked, of seconds": {IfMatch: memory.Lacked, Precision: time.Second}, "paged": {IfMatch: memory.Lacked, PageSize: 1},
	"lacked, no time": {IfAbsent: memory.Lacked, IfMatch: memory.Lacked, NoTime: true},
}

// TestStoreClockSteps: the store's clock is set forward by more than the ttl, and perhaps back. A holder whose refreshes
// are answered keeps its lock, and resumes it after a later outage, also if the last answer is lost, or if the clock is
// set in that outage. Nothing is left after its release.
func TestStoreClockSteps(t *testing.T) {
	for _, after := range rounds.Fewer(
		[]time.Duration{500 * time.Millisecond, 7 * time.Second, 25500 * time.Millisecond, 29 * time.Second, 55 * time.Second},
		[]time.Duration{7 * time.Second, 29 * time.Second}) {
		for _, back := range []time.Duration{0, 3 * time.Second, 4 * time.Minute} {
			for _, look := range []time.Duration{DefaultLook, DefaultTTL} {
				stepped.modes(t, func(t *testing.T, w *world, mode Mode) {
					a, k := w.holder(t, mode, func(o *Options) { o.Look = look })
					time.Sleep(after)
					w.skew.Add(int64(time.Hour))
					if back > 0 {
						time.AfterFunc(back, func() { w.skew.Add(int64(-time.Hour)) })
					}
					if look == DefaultLook && back == 0 {
						time.Sleep(15 * time.Second) // a second flag might still be stored
						w.leavesNothing(k)
						k = a.takes(t, mode)
					}
					time.Sleep(10 * time.Minute)
					lives(t, k)
					a.outlives(t, k)
					mustResume(t, k)
					time.Sleep(5 * time.Minute)
					a.lose(t, k)
					w.skew.Add(int64(-2 * time.Hour))
					a.hooks.Before(nil)
					mustResume(t, k)
					w.leavesNothing(k)
				})
			}
		}
	}
}

// TestStepBeforeALostAnswer: after a step of the store's clock a refresh is applied and not answered. The lock is
// resumed, because that refresh came in time after the one before.
func TestStepBeforeALostAnswer(t *testing.T) {
	for after, look := range map[time.Duration]time.Duration{35 * time.Second: DefaultTTL, 70 * time.Second: DefaultLook} {
		kinds{"kept": {}, "lacked": lacking}.modes(t, func(t *testing.T, w *world, mode Mode) {
			a, k := w.holder(t, mode, func(o *Options) { o.Look = look })
			time.Sleep(7 * time.Second)
			w.skew.Add(int64(time.Hour))
			time.Sleep(after)
			a.hooks.After(func(ctx context.Context, r hookstore.Request, err error) error {
				if r.Op == "put" && r.Key == k.Key() {
					a.hooks.Before(outage)
					return errOutage
				}
				return err
			})
			<-k.Context().Done()
			a.hooks.After(nil)
			a.hooks.Before(nil)
			mustResume(t, k)
		})
	}
}

// TestUnprovenRefreshExtendsNothing: a refresh under a second flag is applied, and then the store shows no listing. Another
// client can have acquired before that refresh, so the lease ends as if there had been none. If the store shows listings
// again before that, the next refresh counts.
func TestUnprovenRefreshExtendsNothing(t *testing.T) {
	for _, fails := range []time.Duration{5 * time.Second, Forever} {
		kinds{"lacked": lacking}.modes(t, func(t *testing.T, w *world, mode Mode) {
			a, k := w.holder(t, mode, func(o *Options) { o.Look = DefaultTTL })
			time.Sleep(7 * time.Second)
			w.skew.Add(int64(time.Hour))
			var refreshed atomic.Bool
			var since time.Time
			a.hooks.After(func(_ context.Context, r hookstore.Request, err error) error {
				if r.Op == "put" && r.Key == k.Key() && !refreshed.Load() {
					since = time.Now()
					refreshed.Store(true)
				}
				return err
			})
			a.hooks.Before(func(_ context.Context, r hookstore.Request) error {
				if r.Op == "list" && refreshed.Load() && time.Since(since) < fails {
					return errOutage
				}
				return nil
			})
			time.Sleep(47 * time.Second)
			assert.That(t, refreshed.Load() && alive(k), "lost before its deadline, or not refreshed: %v", refreshed.Load())
			time.Sleep(5 * time.Second)
			assert.Equal(t, alive(k), fails != Forever, "held, after listings had failed for %v", fails)
		})
	}
}

// TestLeftSecondFlag: the put of a second flag is applied, and its answer is lost. The release deletes that flag, too,
// also if the lock is lost by then. If the store refuses that, the release reports it.
func TestLeftSecondFlag(t *testing.T) {
	for _, expired := range yesNo {
		for _, refused := range yesNo {
			bothModes(t, lacking, func(t *testing.T, w *world, mode Mode) {
				a, k := w.holder(t, mode, func(o *Options) { o.Look = DefaultTTL })
				time.Sleep(7 * time.Second)
				w.skew.Add(int64(time.Hour))
				second := ""
				a.hooks.After(func(_ context.Context, r hookstore.Request, err error) error {
					if r.Op == "put" && r.Key != k.Key() && r.Key != pointer && second == "" {
						second = r.Key
						return errOutage
					}
					return err
				})
				time.Sleep(33 * time.Second)
				assert.That(t, second != "", "no second flag was put")
				lives(t, k)
				if expired {
					a.outlives(t, k)
				}
				if refused {
					a.hooks.Before(inTurn(fails("delete", second, store.ErrPermission), fails("put", second, store.ErrPermission)))
					isAll(t, k.Release(t.Context()), store.ErrPermission)
				} else {
					mustRelease(t, k)
				}
				left := slices.DeleteFunc(w.keys(), func(key string) bool { return expired && key == pointer })
				assert.That(t, refused && slices.Equal(left, []string{second}) || !refused && len(left) == 0, "expired %t, refused %t: left: %v", expired, refused, left)
			})
		}
	}
}

// TestSecondFlagOfAResumedLock: a second flag names the id with which its lock was first acquired. break-lock finds all
// flags of a lock by it.
func TestSecondFlagOfAResumedLock(t *testing.T) {
	bubble(t, lacking, func(t *testing.T, w *world) {
		a, k := w.holder(t, Shared, func(o *Options) { o.Look = DefaultTTL })
		first := k.ID()
		a.outlives(t, k)
		mustResume(t, k)
		time.Sleep(7 * time.Second)
		w.skew.Add(int64(time.Hour))
		var names []string
		a.hooks.Before(func(_ context.Context, r hookstore.Request) error {
			if l, err := wire.Decode(r.Body); err == nil && r.Op == "put" && r.Key != k.Key() {
				names = append(names, l.AcquiredID)
			}
			return nil
		})
		time.Sleep(33 * time.Second)
		assert.Equal(t, names, []string{first}, "the ids that the second flags name")
	})
}

// TestPassedUnderASecondFlag: an acquirer has found the flag of a paused machine stale, and would acquire without another
// look. It deletes the flag, comes and goes just when the machine refreshes the flag under a second one. The machine
// sees the acquirer's flag before, and doesn't refresh.
func TestPassedUnderASecondFlag(t *testing.T) {
	for holds, passes := range map[Mode]Mode{Exclusive: Shared, Shared: Exclusive} {
		holding(t, memory.Options{IfMatch: memory.Lacked}, holds, func(t *testing.T, w *world, a *machine, k *Lock) {
			time.Sleep(14 * time.Second)
			go a.stands(70*time.Second, true)
			time.Sleep(68 * time.Second)
			b := w.machine()
			goes, gone := make(chan struct{}, 2), make(chan struct{})
			b.hooks.Before(first("delete", k.Key(), func(hookstore.Request) error { <-goes; return nil }))
			go func() {
				b.untilFree(t, passes, 100*time.Millisecond)
				close(gone)
			}()
			time.Sleep(time.Second)
			time.AfterFunc(4*time.Second, func() { goes <- struct{}{} })
			a.hooks.Before(first("put", k.Key(), func(hookstore.Request) error {
				goes <- struct{}{}
				<-gone
				return nil
			}))
			endsForGood(t, k, DefaultLook)
			k.Release(t.Context())
			<-gone
		})
	}
}

// TestNoResumeAfterASecondSend: the first put of a flag was sent twice, and the first send is applied after another
// holder has come and gone. The flag is as it was, and was not stored all the time.
func TestNoResumeAfterASecondSend(t *testing.T) {
	bubble(t, lacking, func(t *testing.T, w *world) {
		a := w.machine()
		late := make(chan struct{})
		a.hooks.Before(first("put", "", func(r hookstore.Request) error {
			time.AfterFunc(70*time.Second, func() { w.put(r.Key, r.Body); close(late) })
			return errOutage
		}))
		k := a.takes(t, Shared)
		a.hooks.Before(outage)
		time.Sleep(63 * time.Second)
		w.machine().takes(t, Exclusive).Release(t.Context())
		<-late
		a.hooks.Before(nil)
		assert.That(t, !alive(k), "held without a refresh")
		mustNotResume(t, k)
	})
}

// TestNoResumeAfterAnUnseenSecondSend: the same, and no answer and no look has shown the holder when its flag was written,
// because the answers to puts have no times and the flag was on a page that a shared acquirer doesn't read. "once" was
// sent once, and the store applies it a second time. A machine that stands still after that can't date it by its own clock.
func TestNoResumeAfterAnUnseenSecondSend(t *testing.T) {
	paged := lacking
	paged.PageSize = 1
	untimed, timeless := paged, paged
	untimed.UntimedPuts, timeless.NoTime = true, true
	for _, sends := range []string{"twice", "once"} {
		for _, pause := range []time.Duration{0, time.Minute} {
			kinds{"untimed": untimed, "timeless": timeless}.each(t, func(t *testing.T, w *world) {
				other := w.machine().takes(t, Shared)
				time.Sleep(time.Second)
				a := w.machine(func(o *Options) { o.Look = DefaultTTL })
				var again hookstore.Request
				a.hooks.Before(first("put", "", func(r hookstore.Request) error {
					again = r
					if sends == "twice" {
						return errOutage
					}
					return nil
				}))
				k := a.takes(t, Shared)
				a.hooks.Before(outage)
				other.Release(t.Context())
				time.Sleep(63 * time.Second)
				w.machine().untilFree(t, Exclusive, 0)
				w.put(again.Key, again.Body)
				a.clock.pause(pause)
				time.Sleep(pause)
				a.hooks.Before(nil)
				assert.That(t, !alive(k), "sent %s: held without a refresh", sends)
				mustNotResume(t, k)
			})
		}
	}
}

// TestUndatedFlagIsNotLate: if no answer and no look of the acquire has dated the flag, the first look that shows it is no
// sign of a pause. On a store without a time, an acquire that must judge another lock lists its flag, so the lock can be
// resumed.
func TestUndatedFlagIsNotLate(t *testing.T) {
	paged := lacking
	paged.PageSize = 2
	untimed, timeless := paged, paged
	untimed.UntimedPuts, timeless.NoTime = true, true
	kinds{"untimed": untimed, "timeless": timeless}.each(t, func(t *testing.T, w *world) {
		w.afterStalePointer().takes(t, Shared)
		a := w.afterStalePointer()
		k := a.takes(t, Shared)
		time.Sleep(DefaultLook + time.Second)
		assert.Equal(t, a.saw(EventRefreshed), 0, "refreshes by the first look")
		if w.timeless {
			a.outlives(t, k)
			assert.Is(t, k.Resume(t.Context()), nil, "resumed")
		}
		lives(t, k)
	})
}

// refreshedUnderASecondFlag runs f in an outage that begins after a refresh under a second flag, when no look of the
// holder's own has shown the refresh. No answer to a put tells its time. f gets the put of that refresh. After the outage
// it calls then.
func refreshedUnderASecondFlag(t *testing.T, f func(t *testing.T, w *world, k *Lock, last hookstore.Request), then func(*testing.T, *Lock)) {
	bubble(t, memory.Options{IfMatch: memory.Lacked, UntimedPuts: true}, func(t *testing.T, w *world) {
		a, k := w.holder(t, Shared, func(o *Options) { o.Look = DefaultTTL })
		var last hookstore.Request
		a.hooks.After(func(_ context.Context, r hookstore.Request, err error) error {
			if r.Op == "put" && r.Key == k.Key() {
				last = r
			}
			return err
		})
		time.Sleep(7 * time.Second)
		w.skew.Add(int64(time.Hour))
		time.Sleep(33 * time.Second)
		a.hooks.Before(outage)
		time.Sleep(63 * time.Second)
		f(t, w, k, last)
		a.hooks.Before(nil)
		then(t, k)
	})
}

// TestNoResumeOfARefreshThatWasAppliedTwice: the refresh is applied again after another holder has come and gone.
func TestNoResumeOfARefreshThatWasAppliedTwice(t *testing.T) {
	refreshedUnderASecondFlag(t, func(t *testing.T, w *world, k *Lock, last hookstore.Request) {
		w.machine().takes(t, Exclusive).Release(t.Context())
		w.put(last.Key, last.Body)
	}, mustNotResume)
}

func TestResumeAfterARefreshUnderASecondFlag(t *testing.T) {
	refreshedUnderASecondFlag(t, func(*testing.T, *world, *Lock, hookstore.Request) {}, mustResume)
}
