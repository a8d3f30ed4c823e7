package replock

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync/atomic"
	"time"

	"github.com/repolock/repolock/internal/clock"
	"github.com/repolock/repolock/internal/lease"
	"github.com/repolock/repolock/replock/internal/verdict"
)

// term is a lock from its acquire, or from a resume, until its loss or its release. It implements lease.Owner. Its
// objects have one id. A resume begins another term.
type term struct {
	renewer // each refresh changes its objects
	others  others
	seconds seconds
}

// loss returns the *LostError of a lock whose refreshes have ended.
func (k *term) loss(expired bool, err error) lease.Loss {
	if lost, ok := errors.AsType[*LostError](err); ok && !expired {
		return lossOf(lost)
	}
	lost := &LostError{Mode: k.t.mode, Key: k.t.flag.key, Reason: "it could not be refreshed in time"}
	if expired {
		lost.Err = err
	}
	return lossOf(lost)
}

func lossOf(lost *LostError) lease.Loss { return lease.Loss{Err: lost, Definite: lost.Definite} }

// failed reports the n-th failure of a refresh as events.
func (k *term) failed(n int, gaveUp bool, err error) {
	e := k.event(EventRefreshFailed, err)
	e.Failures = n
	k.l.tell(e)
	if gaveUp {
		e.Kind = EventGaveUp
		k.l.tell(e)
	}
}

func (k *term) event(kind EventKind, err error) Event {
	e := k.t.event(kind)
	e.Err = err
	e.Held, e.Left = k.Times()
	switch kind {
	case EventLost, EventReleased, EventReleaseFailed:
		e.Ended = k.ReportEnd()
	}
	return e
}

func (k *term) tell(kind EventKind, err error) { k.l.tell(k.event(kind, err)) }

// About implements lease.Owner.
func (k *term) About() lease.About {
	return lease.About{ID: k.t.id, Key: k.t.flag.key, Operation: k.t.operation, Exclusive: k.t.mode == Exclusive, Fence: k.t.fence}
}

// Resumed implements lease.Owner.
func (k *term) Resumed() { k.tell(EventResumed, nil) }

// usable returns an error if the lock is held, but its context has ended because the parent of the context has.
func (k *term) usable(err error) error {
	if err == nil && k.Context().Err() != nil {
		return fmt.Errorf("the context of the %s lock has ended with its parent, the context of the acquire or of WithParent: %w", k.t.mode, whyEnded(k.Context()))
	}
	return err
}

// objects returns copies of our two objects, with the facts that we know about them.
func (k *term) objects() (flag, pointer object) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.t.flag, k.t.pointer
}

// ofMode returns the objects that a lock of this mode has: the flag, and for an exclusive lock also lock.exclusive.
func (k *term) ofMode(flag, pointer *object) []*object {
	if k.t.mode == Exclusive {
		return []*object{flag, pointer}
	}
	return []*object{flag}
}

// commit stores the results of a refresh in the lock.
func (k *term) commit(flag, pointer object) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.t.flag.etag, k.t.flag.sent, k.t.flag.renewed = flag.etag, flag.sent, flag.renewed
	k.t.pointer.etag, k.t.pointer.sent, k.t.pointer.renewed = pointer.etag, pointer.sent, pointer.renewed
}

// others has the facts that a holder's looks have learned about other clients' locks. Only the look that holds turn
// uses it.
type others struct {
	turn   chan struct{}
	memory verdict.Memory
	last   pageTime // the last page that had the store's time
	// crowded records whether listing all locks is expensive, as of the last listing of all.
	crowded *atomic.Bool
}

// crowd is the number of lock objects above which a shared holder's look lists only lock.exclusive. Otherwise the cost
// of n holders' looks would grow with n². The number is a guess at the cost of a second request.
const crowd = 100

// newOthers returns the facts that the acquire has learned: the store's time, and the stale lock.exclusive that a
// shared acquirer has left. The entry of that lock.exclusive knows since when it is unchanged.
func newOthers(t *attempt) others {
	s := others{turn: make(chan struct{}, 1), memory: verdict.Memory{}, last: t.page, crowded: new(atomic.Bool)}
	s.crowded.Store(t.page.objects > crowd)
	if t.leftPointer != nil {
		s.memory[t.leftPointer.Key] = t.leftPointer
	}
	return s
}

// note records the time of a page, if the page has the store's time.
func (o *others) note(page pageTime) {
	if !page.store.IsZero() {
		o.last = page
	}
}

// saw records when a look last showed the lock. If the wall clock was stepped since the last record, saw records
// nothing, and only reassure can.
func (k *term) saw(r clock.Reading) {
	if !r.SteppedSince(k.Seen()) {
		k.Saw(r)
	}
}

// sent returns when the last refresh that was answered in time was sent.
func (k *term) sent() time.Duration { return k.end() - k.l.times.Deadline }

// underSecond reports whether a second flag shows that no client has acquired. Then a refresh can do no harm.
func (k *term) underSecond() bool {
	k.seconds.mu.Lock()
	defer k.seconds.mu.Unlock()
	return k.seconds.now != nil && k.seconds.now.proven
}

// own returns the keys and ids of our attempts and second flags.
func (k *term) own() ownAttempts {
	k.seconds.mu.Lock()
	defer k.seconds.mu.Unlock()
	all := k.t.ownAttempts
	all.ids, all.keys = maps.Clone(all.ids), maps.Clone(all.keys)
	for _, s := range append(k.seconds.left, k.seconds.now) {
		if s != nil {
			all.ids[s.id], all.keys[s.flag.key] = true, true
		}
	}
	return all
}

// asAttempt returns the lock as an attempt to acquire it, for looks that judge the locks of others as an acquirer does.
// It has the objects as they are stored now, and the end of the lease as its deadline. The caller puts nothing with it,
// so it has no body and no record of puts.
func (k *term) asAttempt() *attempt {
	flag, pointer := k.objects()
	return &attempt{
		mode: k.t.mode, operation: k.t.operation, id: k.t.id, ownAttempts: k.own(),
		flag: flag, pointer: pointer, trips: k.t.trips, deadline: k.end(),
	}
}

// lookAgain looks as an acquirer does, and repeats that as afterReturn decides. Each look must show our own flag,
// because an acquirer that has deleted it can take the lock at any moment.
func (k *term) lookAgain(ctx context.Context, t *attempt) error {
	return k.lookUntil(ctx, t, func(context.Context) error { return nil })
}

// lookUntil is lookAgain. It calls check after each look, before it uses the look.
func (k *term) lookUntil(ctx context.Context, t *attempt, check func(context.Context) error) error {
	l := k.l
	s := verdict.Memory{}
	var first time.Duration
	for n := 1; ; n++ {
		f, err := l.look(ctx, t, s)
		if err != nil {
			return err
		}
		t.found(f)
		first = cmp.Or(first, l.opts.Clock.Elapsed())
		next := l.afterReturn(t, f, n, l.opts.Clock.Elapsed()-first)
		f.Live = slices.Concat(f.Live, f.Doubtful, f.Vanished)
		if len(f.Live) > 0 && next.step == giveUp {
			if i := slices.IndexFunc(f.Live, func(e *verdict.Entry) bool { return e.Err == nil && t.ids[e.Lease.ID] }); i >= 0 {
				return k.copied(f.Live[i].Key)
			}
			lost := k.broken(k.t.flag.key, "it expired, and another lock conflicts")
			lost.Err = l.heldError(t, f)
			return lost
		}
		if err := l.stillListed(ctx, t); err != nil {
			return err
		}
		if err := check(ctx); err != nil {
			return err
		}
		if l.opts.Clock.Elapsed() >= t.deadline {
			return errLate
		}
		if len(f.Live) == 0 {
			if err := l.reap(ctx, t, f); err != nil {
				return err
			}
			if t.mode == Exclusive && !t.listed.pointer {
				return k.broken(t.pointer.key, "it was deleted or replaced")
			}
			t.leftPointer = f.Pointer
			return nil
		}
		if err := clock.Sleep(ctx, l.opts.Clock, l.jitter(next.pause)); err != nil {
			return err
		}
	}
}
