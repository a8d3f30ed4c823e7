package replock

import (
	"context"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/repolock/repolock/internal/test/assert"
	"github.com/repolock/repolock/internal/test/hookstore"
	"github.com/repolock/repolock/store"
	"github.com/repolock/repolock/store/memory"
)

// lasts checks that the other client's lock stays held.
func (w *world) lasts(other *Lock) {
	w.t.Helper()
	time.Sleep(DefaultTTL)
	if other == nil {
		w.t.Fatal("there is no next holder")
	}
	lives(w.t, other)
	other.Release(w.t.Context())
}

// TestRepeatedReleaseLeavesTheNextHolder: a release whose delete, or emptying put, was applied and
// answered with a 500 leaves the next holder alone when it is repeated. So does one whose delete, which
// was given up, is refused only after that put.
func TestRepeatedReleaseLeavesTheNextHolder(t *testing.T) {
	const late = "put, and a delete that comes back late"
	for _, op := range []string{"delete", "put", late} {
		sub(t, op, memory.Options{}, func(t *testing.T, w *world) {
			a, k := w.holder(t, Exclusive)
			b := w.machine()
			replaced := make(chan struct{})
			switch op {
			case "put":
				a.hooks.Before(mayNotDelete)
			case late: // as a system call on a network file system: it heeds no context
				a.hooks.Before(inTurn(first("delete", pointer, func(hookstore.Request) error { <-replaced; return nil }), mayNotDelete))
			}
			var other *Lock
			var failed atomic.Bool
			a.hooks.After(func(ctx context.Context, r hookstore.Request, err error) error {
				if strings.HasPrefix(op, r.Op) && r.Key == pointer && failed.CompareAndSwap(false, true) {
					w.delete(k.Key()) // or the release waits for it
					other = b.takes(t, Exclusive)
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

// TestReleaseSendsNoPut: a refresh whose look is answered after Release was called sends no put, which could
// come after the deletions.
func TestReleaseSendsNoPut(t *testing.T) {
	bothModes(t, lacking, func(t *testing.T, w *world, mode Mode) {
		a, k := w.holder(t, mode, func(o *Options) { o.Look = DefaultTTL })
		time.Sleep(29 * time.Second)
		a.hooks.Count()
		released := make(chan error)
		a.hooks.After(answered("list", k.Key(), func(hookstore.Request) {
			go func() { released <- k.Release(t.Context()) }()
			time.Sleep(time.Second)
		}))
		assert.OK(t, <-released)
		a.sent(t, between{"put": {0, int(mode) - 1}}) // lock.exclusive was looked at before
		w.empty()
	})
}

// TestReleaseEndsTheContextFirst: Release ends the lock's context before it deletes anything.
func TestReleaseEndsTheContextFirst(t *testing.T) {
	holding(t, memory.Options{}, Exclusive, func(t *testing.T, w *world, a *machine, k *Lock) {
		var deletes atomic.Int32
		a.hooks.Before(on("delete", "", func(hookstore.Request) {
			deletes.Add(1)
			assert.That(t, !alive(k), "others can be in, and the context lives")
		}))
		k.Release(t.Context())
		equal(t, "deletions", deletes.Load(), 2)
	})
}

// TestReleaseOfALostLockLeavesTheNextHolder: the release of a lost lock leaves lock.exclusive
// alone, which can be another holder's, also if a refresh is about to notice the loss.
func TestReleaseOfALostLockLeavesTheNextHolder(t *testing.T) {
	for _, noticed := range []bool{true, false} {
		holding(t, memory.Options{}, Exclusive, func(t *testing.T, w *world, a *machine, k *Lock) {
			time.Sleep(29 * time.Second)
			w.breakAll()
			other := w.machine().takes(t, Exclusive)
			if noticed {
				<-k.Context().Done()
			} else {
				a.hooks.Before(takesASecond)
				time.Sleep(2 * time.Second)
			}
			k.Release(t.Context())
			w.lasts(other)
		})
	}
}

// TestLookBeforeReleaseCounts: a release looks at lock.exclusive unless Check has just shown that it is its own. A
// look that is older doesn't count, nor for a second request. (Each request takes a second. The listings of the
// acquire can take longer.)
func TestLookBeforeReleaseCounts(t *testing.T) {
	for name, c := range map[string]struct {
		since time.Duration // Check
		fails int32         // deletions of lock.exclusive without an answer
		gets  int
		slow  time.Duration // so much longer the acquire's listings take
	}{
		"just now":                          {0, 0, 0, 0},
		"a moment ago":                      {2190 * time.Millisecond, 0, 0, 0},
		"too long ago":                      {2210 * time.Millisecond, 0, 1, 0},
		"too long ago, after slow listings": {2210 * time.Millisecond, 0, 1, 4 * time.Second},
		"for one request":                   {0, 1, 1, 0},
		"for one of three":                  {0, 2, 2, 0},
	} {
		sub(t, name, lacking, func(t *testing.T, w *world) {
			a := w.machine(func(o *Options) { o.Look = DefaultTTL })
			a.hooks.Before(inTurn(takesASecond, slow("list", "", c.slow)))
			k := a.takes(t, Exclusive)
			a.hooks.Before(takesASecond)
			time.Sleep(10 * time.Second)
			assert.OK(t, k.Check(t.Context()))
			time.Sleep(c.since)
			a.hooks.Count()
			var deletes atomic.Int32
			a.hooks.Before(inTurn(takesASecond, when("delete", pointer, func(context.Context, hookstore.Request) error {
				if deletes.Add(1) <= c.fails {
					return errOutage
				}
				return nil
			})))
			w.leavesNothing(k)
			a.sent(t, between{"get": {c.gets, c.gets}})
		})
	}
}

// TestBrokenWhileJudged: an exclusive lock and a shared one are broken between a look's listing and its read of the shared
// one. The look's second listing shows that, so Check returns the loss, and Release leaves a later holder's
// lock.exclusive.
func TestBrokenWhileJudged(t *testing.T) {
	for name, broken := range map[string]func(k *Lock) []string{
		"both":           func(k *Lock) []string { return []string{pointer, k.Key()} },
		"the flag":       func(k *Lock) []string { return []string{k.Key()} },
		"lock.exclusive": func(*Lock) []string { return []string{pointer} },
		"neither":        func(*Lock) []string { return nil },
	} {
		sub(t, name, lacking, func(t *testing.T, w *world) {
			const shared = "index/lock.shared/x"
			a, k := w.holder(t, Exclusive)
			time.Sleep(time.Minute)
			w.put(shared, foreign(time.Now(), true))
			a.hooks.Before(first("get", shared, func(hookstore.Request) error {
				for _, key := range append(broken(k), shared) {
					w.delete(key)
				}
				return nil
			}))
			err := k.Check(t.Context())
			if len(broken(k)) == 0 {
				assert.OK(t, err)
				return
			}
			assert.Says(t, err, ErrLost, "it was deleted")
			another := foreign(time.Now(), false)
			w.put(pointer, another)
			k.Release(t.Context())
			w.has(pointer, another)
		})
	}
}

// TestUnreadIsNotOurs: a look has shown the lock's own lock.exclusive. The next one, or a refresh, shows another object
// there, and can't read it. Then the first one doesn't count, and Release leaves the object of another client.
func TestUnreadIsNotOurs(t *testing.T) {
	for name, look := range map[string]func(context.Context, *Lock) error{
		"Check": func(ctx context.Context, k *Lock) error { return k.Check(ctx) }, "Refresh": func(ctx context.Context, k *Lock) error { return k.Refresh(ctx) },
	} {
		sub(t, name, lacking, func(t *testing.T, w *world) {
			a, k := w.holder(t, Exclusive)
			assert.OK(t, k.Check(t.Context()))
			another := foreign(time.Now(), false)
			w.put(pointer, another)
			a.hooks.Before(fails("get", pointer, errOutage))
			err := look(t.Context(), k)
			assert.That(t, err != nil && k.Lost() == nil, "%v, lost: %v", err, k.Lost())
			a.hooks.Before(nil)
			k.Release(t.Context())
			w.has(pointer, another)
		})
	}
}

// TestReleaseStopsAtTheDeadline: Release neither waits for nor repeats a delete of lock.exclusive
// beyond the lease.
func TestReleaseStopsAtTheDeadline(t *testing.T) {
	holding(t, memory.Options{}, Exclusive, func(t *testing.T, w *world, a *machine, k *Lock) {
		a.hooks.Before(outage)
		time.Sleep(54 * time.Second)
		left := k.Left()
		began := time.Now()
		var asked notes[time.Duration]
		a.hooks.Before(inTurn(on("", pointer, func(hookstore.Request) { asked.add(time.Since(began)) }), outage))
		k.Release(t.Context())
		all := asked.got()
		assert.That(t, len(all) > 0 && slices.Max(all) <= left, "requests for lock.exclusive at %v, with %v left", all, left)
	})
}

func TestReleaseTwiceAndAfterContext(t *testing.T) {
	do(t, func(t *testing.T, w *world) {
		ctx, cancel := context.WithCancel(t.Context())
		k := w.machine().takes(t, Exclusive, WithParent(ctx))
		cancel() // TestParentOfTheLocksContext
		for range 2 {
			assert.OK(t, k.Release(ctx))
		}
		w.empty()
		isAll(t, k.Refresh(t.Context()), ErrReleased)
		equal(t, "left", k.Left(), 0)
	})
}

// TestReleaseAfterARotation: if the store refuses the credentials of a release, the release is repeated, because another
// process might write new ones. A refusal that lasts costs no put beside the delete.
func TestReleaseAfterARotation(t *testing.T) {
	stores.modes(t, func(t *testing.T, w *world, mode Mode) {
		m, k := w.holder(t, mode)
		m.hooks.Before(fails("", "", store.ErrCredentials))
		time.AfterFunc(3*time.Second, func() { m.hooks.Before(nil) })
		mustRelease(t, k)
		w.empty()

		k = m.takes(t, mode)
		m.hooks.Before(fails("", "", store.ErrCredentials))
		m.hooks.Count()
		isAll(t, k.Release(t.Context()), store.ErrCredentials)
		m.sent(t, between{"put": {0, 0}})
	})
}
