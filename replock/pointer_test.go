package replock

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/repolock/repolock/internal/test/assert"
	"github.com/repolock/repolock/internal/test/hookstore"
	"github.com/repolock/repolock/replock/internal/wire"
	"github.com/repolock/repolock/store"
	"github.com/repolock/repolock/store/memory"
)

// TestOnlyExclusiveAcquirersTouchLockExclusive: a shared acquirer passes a stale one and leaves it as it is. A
// client of the original protocol can have put a live one there since it was read. An exclusive acquirer overwrites
// it, and deletes only its own, because a late delete would remove a successor's.
func TestOnlyExclusiveAcquirersTouchLockExclusive(t *testing.T) {
	stores.modes(t, func(t *testing.T, w *world, mode Mode) {
		a := w.afterStalePointer()
		a.hooks.Before(on("", pointer, func(r hookstore.Request) {
			assert.That(t, r.Op == "get" || mode == Exclusive && r.Op != "delete", "%s of %s", r.Op, r.Key)
		}))
		k := a.takes(t, mode)
		if mode == Shared {
			time.Sleep(5 * time.Minute)
			lives(t, k)
			k.Release(t.Context())
			w.stores(pointer)
		}
	})
}

// TestExclusiveIsSeenBeforeItIsHeld: the last look has seen lock.exclusive before the lock is held.
func TestExclusiveIsSeenBeforeItIsHeld(t *testing.T) {
	do(t, func(t *testing.T, w *world) {
		a := w.machine()
		a.hooks.Before(first("list", "", func(hookstore.Request) error { w.delete(pointer); return nil }))
		a.takes(t, Exclusive)
		assert.That(t, slices.Contains(w.keys(), pointer), "held without lock.exclusive")
	})
}

// TestKeptConditionIsNeverGivenUp: where the backend itself keeps If-None-Match, no refusal makes an acquirer write
// without it. If LIST shows nothing, it pauses between its puts. Its error names the refusals.
func TestKeptConditionIsNeverGivenUp(t *testing.T) {
	do(t, func(t *testing.T, w *world) {
		m := w.machine()
		var n atomic.Int32
		m.hooks.Before(inTurn(slow("", "", 5*time.Millisecond), when("put", pointer, func(_ context.Context, r hookstore.Request) error {
			assert.That(t, r.Opts.IfAbsent, "lock.exclusive was put without a condition")
			n.Add(1)
			return store.ErrPrecondition
		})))
		assert.Says(t, m.fails(t, Exclusive, ErrUnsure), ErrUnsure, `"index/lock.exclusive" with If-None-Match (412)`)
		assert.That(t, n.Load() <= 450, "%d puts of lock.exclusive in three attempts of 45 s, without a pause of 400 ms", n.Load())
	})
}

// TestRefusedThoughListed: a lock.exclusive that a look shows is never overwritten because puts are refused.
func TestRefusedThoughListed(t *testing.T) {
	holding(t, memory.Options{Markers: true}, Exclusive, func(t *testing.T, w *world, _ *machine, k *Lock) {
		for range 5 {
			w.machine().refused(t, Exclusive)
		}
		equal(t, "lock.exclusive is of", w.body(pointer).ID, k.ID())
	})
}

// TestUnfitIsNotHeld: a store that can't hold locks is no HeldError, which a caller would skip for ever.
func TestUnfitIsNotHeld(t *testing.T) {
	for _, patience := range []time.Duration{0, time.Hour} {
		bothModes(t, memory.Options{}, func(t *testing.T, w *world, mode Mode) {
			w.machine().takes(t, Exclusive)
			m := w.machine()
			m.hooks.Before(fails("get", "", store.ErrConfig))
			err := m.fails(t, mode, store.ErrConfig, WithWait(patience))
			assert.That(t, !errors.Is(err, ErrHeld), "waiting for %v: %v", patience, err)
		})
	}
}

// TestProveAbsent: if If-None-Match is only claimed, the first exclusive acquire of a process
// finds out, when it puts its flag, whether the server keeps it. If it doesn't, this acquire and
// the next ones look before they write lock.exclusive.
func TestProveAbsent(t *testing.T) {
	for absent, c := range map[memory.Condition]struct{ first, next cost }{
		memory.Kept:    {cost{2, 3}, cost{2, 3}},
		memory.Claimed: {cost{3, 5}, cost{2, 3}},
		memory.Ignored: {cost{4, 6}, cost{4, 4}},
		memory.Lacked:  {cost{4, 4}, cost{4, 4}},
	} {
		bubble(t, memory.Options{IfAbsent: absent}, func(t *testing.T, w *world) {
			m := w.machine()
			for i, want := range []cost{c.first, c.next, c.next} {
				var k *Lock
				m.costs(t, fmt.Sprint(absent, ", acquire ", i), want, func() { k = m.takes(t, Exclusive) })
				k.Release(t.Context())
			}
		})
	}
}

// TestProveAbsentHarmless: a process tries out no condition on another's lock.exclusive. It puts
// that only with a condition that the server was seen to keep.
func TestProveAbsentHarmless(t *testing.T) {
	for _, condition := range []memory.Condition{memory.Claimed, memory.Ignored} {
		bubble(t, memory.Options{IfAbsent: condition}, func(t *testing.T, w *world) {
			k := w.machine().takes(t, Exclusive)
			for range 3 {
				m := w.machine()
				m.hooks.Before(on("put", pointer, func(r hookstore.Request) {
					assert.That(t, r.Opts.IfAbsent && m.conditions.absent.holds(), "lock.exclusive is put while another holds it")
				}))
				m.refused(t, Exclusive)
				assert.That(t, condition == memory.Claimed || !m.conditions.absent.holds(), "a condition that is ignored counts as proven")
			}
			time.Sleep(2 * DefaultTTL)
			lives(t, k)
		})
	}
}

// objects runs a test with each object of a held lock.
func (k kinds) objects(t *testing.T, f func(t *testing.T, w *world, m *machine, k *Lock, key string)) {
	t.Helper()
	k.holders(t, func(t *testing.T, w *world, m *machine, k *Lock) { f(t, w, m, k, k.Key()) })
	t.Run("lock.exclusive", func(t *testing.T) {
		k.each(t, func(t *testing.T, w *world) {
			m, k := w.holder(t, Exclusive)
			f(t, w, m, k, pointer)
		})
	})
}

// TestProofRevivesNoBrokenLock: the proof of If-Match doesn't put a broken lock back after the right ETag was refused.
func TestProofRevivesNoBrokenLock(t *testing.T) {
	holding(t, claiming, Shared, func(t *testing.T, w *world, a *machine, k *Lock) {
		var entered atomic.Pointer[Lock]
		a.hooks.Before(on("put", k.Key(), func(r hookstore.Request) {
			if r.Opts.IfMatch != "" && r.Opts.IfMatch != wrongETag && entered.Load() == nil {
				w.delete(k.Key()) // break-lock
				entered.Store(w.machine().takes(t, Exclusive))
			}
		}))
		time.Sleep(100 * time.Second)
		other := entered.Load()
		assert.That(t, other != nil && (!alive(other) || !alive(k)), "both in: the proof of If-Match put back a broken flag")
	})
}

// TestProofByTwoPuts: If-None-Match is relied on only if the server was seen to refuse one of two puts of one new key, and
// not to take both. It is refuted if both were taken, if it isn't supported, or if only puts without it are allowed.
func TestProofByTwoPuts(t *testing.T) {
	refused, unsupported := store.ErrPrecondition, store.ErrConditionUnsupported
	for _, c := range []struct {
		a, b         error
		plain        bool
		holds, fails bool
	}{
		{nil, refused, false, true, false}, {refused, refused, true, true, false}, {refused, errOutage, true, true, false},
		{refused, store.ErrConflict, true, true, false}, {nil, nil, false, false, true},
		{nil, unsupported, false, false, true}, {refused, unsupported, true, false, true},
		{store.ErrConflict, store.ErrPermission, true, false, true}, {store.ErrConflict, store.ErrPermission, false, false, false},
		{nil, errOutage, false, false, false}, {nil, store.ErrConflict, false, false, false}, {errOutage, errOutage, true, false, false},
	} {
		for _, errs := range [][2]error{{c.a, c.b}, {c.b, c.a}} {
			var p proof
			p.state.Store(unproven)
			p.learnFromTwo(errs[0], errs[1], c.plain)
			assert.That(t, p.holds() == c.holds && p.fails() == c.fails, "%v, without it taken %t: holds %t, fails %t", errs, c.plain, p.holds(), p.fails())
		}
	}
}

// TestProofWithoutAnAnswer: an acquirer puts its flag again if all three puts of a proof fail, which prove nothing.
func TestProofWithoutAnAnswer(t *testing.T) {
	bubble(t, memory.Options{IfAbsent: memory.Claimed}, func(t *testing.T, w *world) {
		m := w.machine()
		var puts atomic.Int32
		m.hooks.Before(when("put", "/lock.intent/", func(context.Context, hookstore.Request) error {
			if puts.Add(1) <= 3 {
				return errOutage
			}
			return nil
		}))
		m.takes(t, Exclusive)
		assert.That(t, puts.Load() == 4 && m.conditions.absent.open(), "%d puts", puts.Load())
	})
}

// TestPutsOfAProofAreApart: no put of a proof meets one before at a server that answers soon, and one
// that is far away gets all of them within one round trip. A put that isn't needed isn't sent.
func TestPutsOfAProofAreApart(t *testing.T) {
	for trip, want := range map[time.Duration][]time.Duration{
		time.Millisecond:       {0, time.Millisecond},
		160 * time.Millisecond: {0, proofPause, 2 * proofPause},
	} {
		bubble(t, memory.Options{IfAbsent: memory.Claimed}, func(t *testing.T, w *world) {
			m := w.machine()
			var sent notes[time.Duration]
			began := time.Now()
			m.hooks.Before(inTurn(on("put", "/lock.intent/", func(hookstore.Request) { sent.add(time.Since(began)) }), slow("", "", trip)))
			m.takes(t, Exclusive)
			assert.That(t, slices.Equal(sent.got(), want) && m.conditions.absent.holds(), "%v: sent at %v, want %v", trip, sent.got(), want)
		})
	}
}

// TestReleaseLeavesAnothersPointer: Release neither deletes nor empties a lock.exclusive whose body isn't its own.
func TestReleaseLeavesAnothersPointer(t *testing.T) {
	for name, another := range map[string][]byte{
		"of another client": foreign(time.Now(), false),
		"encrypted":         []byte("\x01 this is ciphertext"),
		"larger than locks": bytes.Repeat([]byte("x"), wire.MaxBody+1),
	} {
		for _, refuse := range []hookstore.Before{nil, mayNotDelete} {
			sub(t, name, memory.Options{}, func(t *testing.T, w *world) {
				a, k := w.holder(t, Exclusive)
				a.hooks.Before(refuse)
				w.put(pointer, another)
				mustRelease(t, k)
				w.has(pointer, another)
			})
		}
	}
}

// TestReleaseDeletesWhatItSaw: if the store keeps conditions, a release neither deletes nor
// empties a body that comes after its look, or, if it needs no look, after its last refresh.
func TestReleaseDeletesWhatItSaw(t *testing.T) {
	for _, refuse := range []hookstore.Before{nil, mayNotDelete} {
		for _, checked := range yesNo {
			kinds{"kept": {}, "proven": claiming}.each(t, func(t *testing.T, w *world) {
				a, k := w.holder(t, Exclusive)
				time.Sleep(40 * time.Second) // the first refresh has proven If-Match
				equal(t, "If-Match is relied on", a.conditions.match.holds(), true)
				if checked {
					assert.OK(t, k.Check(t.Context()))
				}
				another := foreign(time.Now(), false)
				var came atomic.Bool
				a.hooks.Before(inTurn(on("", pointer, func(r hookstore.Request) {
					if (r.Op == "delete" || r.Op == "put") && came.CompareAndSwap(false, true) {
						w.put(pointer, another)
					}
				}), refuse))
				mustRelease(t, k)
				w.has(pointer, another)
			})
		}
	}
}

// refusesDeletes claims conditional deletes, and refuses each as unmet.
type refusesDeletes struct{ store.Store }

func (refusesDeletes) DeleteIfMatch(context.Context, string, string) error {
	return store.ErrPrecondition
}

// TestReleaseWithoutConditionalDelete: a store that lacks conditional deletes, or refuses each, is left clean.
func TestReleaseWithoutConditionalDelete(t *testing.T) {
	do(t, func(t *testing.T, w *world) {
		for _, s := range []store.Store{struct{ store.Store }{w.mem}, refusesDeletes{w.mem}} {
			a := w.machine()
			a.hooks.Store = s
			w.leavesNothing(a.takes(t, Exclusive))
		}
	})
}

// TestReleaseActsOnAFreshLook: a holder that was stopped between its look at lock.exclusive
// and the delete, for longer than its lease, deletes nothing.
func TestReleaseActsOnAFreshLook(t *testing.T) {
	holding(t, lacking, Exclusive, func(t *testing.T, w *world, a *machine, k *Lock) {
		another := foreign(time.Now(), false)
		a.hooks.After(answered("get", pointer, func(hookstore.Request) {
			a.clock.jump(2 * time.Minute)
			w.put(pointer, another)
		}))
		k.Release(t.Context())
		w.has(pointer, another)
	})
}

// has fails unless the key has the body.
func (w *world) has(key string, body []byte) {
	w.t.Helper()
	raw, _, err := w.mem.Get(context.Background(), key, 1<<20)
	assert.That(w.t, err == nil && bytes.Equal(raw, body), "%s has %.80q, %v", key, raw, err)
}

// TestLatePointerIsTakenDown: a put of lock.exclusive that is applied after another put of it
// was answered, and deleted, leaves nothing, whether the lock is granted or refused. A lock.exclusive that was
// taken down for a shared holder is back before the lock is held.
func TestLatePointerIsTakenDown(t *testing.T) {
	eachOf(t, yesNo, func(t *testing.T, w *world, granted bool) {
		a, s := w.machine(), w.machine().takes(t, Shared)
		var late []byte
		a.hooks.Before(first("put", pointer, func(r hookstore.Request) error { late = r.Body; return errOutage }))
		a.hooks.After(firstAnswered("delete", pointer, func(r hookstore.Request) {
			w.put(r.Key, late)
			if granted {
				s.Release(t.Context())
			}
		}))
		if granted {
			k := a.takes(t, Exclusive)
			assert.That(t, slices.Contains(w.keys(), pointer), "held without lock.exclusive")
			mustRelease(t, k)
		} else {
			a.refused(t, Exclusive)
			w.stores(s.Key())
		}
		w.leavesNothing(s)
	})
}

// ignoresDeleteCondition keeps the conditions of puts, and claims that of deletions.
type ignoresDeleteCondition struct{ *memory.Store }

func (s ignoresDeleteCondition) Properties() store.Properties {
	p := s.Store.Properties()
	p.DeleteIfMatch = store.Claimed
	return p
}

func (s ignoresDeleteCondition) DeleteIfMatch(ctx context.Context, key, _ string) error {
	return s.Delete(ctx, key)
}

// TestClaimedDeleteNeedsALook: a release that doesn't know whether the server heeds the condition
// of a deletion looks first, and leaves another's lock.exclusive alone.
func TestClaimedDeleteNeedsALook(t *testing.T) {
	do(t, func(t *testing.T, w *world) {
		l, err := New(ignoresDeleteCondition{w.mem}, w.machine().opts)
		assert.OK(t, err)
		k, err := l.TryExclusive(t.Context(), "prune")
		mustLock(t, k, err)
		time.Sleep(10 * time.Second)
		another := foreign(time.Now(), false)
		w.put(pointer, another)
		mustRelease(t, k)
		w.has(pointer, another)
	})
}

// TestOwnPointerMustBeListed: if puts of lock.exclusive are answered, and no listing shows one, the acquire ends soon, and
// the error names the object. Until then its intent refuses others.
func TestOwnPointerMustBeListed(t *testing.T) {
	stores.each(t, func(t *testing.T, w *world) {
		m := w.machine()
		m.hooks.After(answered("put", pointer, func(hookstore.Request) { w.delete(pointer) }))
		start := time.Now()
		assert.Says(t, m.fails(t, Exclusive, ErrUnsure, WithWait(time.Hour)), ErrUnsure, `didn't list a lock that was just put: "index/lock.exclusive"`)
		took(t, start, 0, 5*time.Second)
		w.stores()
		w.machine().takes(t, Shared)
	})
}

// TestPointerIsRemovedOnce: an acquirer whose lock.exclusive was removed puts it again, beside the same flag.
func TestPointerIsRemovedOnce(t *testing.T) {
	stores.each(t, func(t *testing.T, w *world) {
		m := w.machine()
		var n atomic.Int32
		m.hooks.After(answered("put", pointer, func(hookstore.Request) {
			if n.Add(1) < maxUnlisted {
				w.delete(pointer)
			}
		}))
		m.hooks.Before(on("delete", "lock.intent", func(r hookstore.Request) { t.Errorf("deleted %s", r.Key) }))
		m.takes(t, Exclusive)
		assert.That(t, n.Load() >= maxUnlisted, "%d puts", n.Load())
	})
}
