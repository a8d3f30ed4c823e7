package replock

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/repolock/repolock/internal/clock"
	"github.com/repolock/repolock/internal/fault"
	"github.com/repolock/repolock/internal/lease"
	"github.com/repolock/repolock/store"
)

// acquire takes a lock: docs/evidence/protocol.md, Acquire. It returns when it has the lock, when another
// holder certainly has it, or when it can't find out whether one has. A failed attempt withdraws all its
// objects. Its findings name the conflicting locks. After each attempt, q.again decides the next step.
func (l *Locker) acquire(ctx context.Context, mode Mode, operation string, opts ...AcquireOption) (*Lock, error) {
	if err := CheckOperation(operation); err != nil {
		return nil, err
	}
	q := l.newQueue(ctx, mode, operation, opts)
	if err := q.check(); err != nil {
		return nil, err
	}
	ctx, free := lease.Bound(ctx, q.parent)
	defer free(nil)
	defer q.leave(ctx)
	for {
		t, err := q.newAttempt()
		if err != nil {
			return nil, err
		}
		f, err := l.enter(ctx, t, q)
		if err == nil {
			err = l.settle(ctx, t)
		}
		if err != nil {
			l.withdraw(ctx, t, err)
		}
		switch {
		case err == nil:
			held := l.hold(t)
			e := held.event(EventAcquired, nil)
			e.Waited = q.waitedFor()
			l.tell(e)
			return newLock(held), nil
		case ctx.Err() != nil:
			return nil, q.ended(ctx, t, f)
		}
		switch next := q.again.afterAttempt(t, err, q.waits()); next.step {
		case queueUp:
			if err := q.wait(ctx, t, f); err != nil {
				return nil, err
			}
		case giveUp:
			return nil, next.err
		}
	}
}

// errDoubt is the error of a look in which every conflicting lock is doubtful.
var errDoubt = errors.New("perhaps stale")

// settle returns nil if the lock can be held, after a look that found no conflict.
func (l *Locker) settle(ctx context.Context, t *attempt) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return l.holdable(t)
}

// heldError returns the error that names the conflicting locks.
func (l *Locker) heldError(t *attempt, f findings) *HeldError {
	in := f.live
	if len(in) == 0 {
		in = f.doubtful
	}
	return &HeldError{Mode: t.mode, Holders: l.infos(in, f), More: f.more}
}

// enter puts the objects of an attempt, and returns nil once a look finds no conflict.
//
// Why that excludes all others: our flag was put, and the put was answered, before the last look
// began. The look found no live flag that conflicts. It ended before the deadline of our flag, so
// our flag was stored and live throughout. A conflicting acquirer that the look didn't show puts
// its flag after our look began. Its own look comes after that, and shows our flag.
func (l *Locker) enter(ctx context.Context, t *attempt, q *queue) (findings, error) {
	if err := l.exists(ctx); err != nil {
		return findings{}, fault.While("looking for other locks", err)
	}
	if err := l.raise(ctx, t); err != nil {
		return l.barred(ctx, t, q.memory, err)
	}
	q.again.try = lookCounts{until: q.decidesBy(t)}
	for swept := false; ; {
		f, err := l.look(ctx, t, q.memory)
		t.found(f)
		next := q.again.afterLook(t, f, err)
		switch next.step {
		case giveUp:
			if errors.Is(next.err, ErrHeld) && len(f.live) == 0 {
				f.live = f.vanished // a listing counts more than a read
			}
			return f, next.err
		case stepBack:
			if !l.stepBack(ctx, t) {
				return f, ErrHeld
			}
		case goOn:
			if err := l.reap(ctx, t, f); err != nil {
				return f, err
			}
			if t.mode == Exclusive && !swept {
				l.sweep(ctx, f.released)
				swept = true
			}
			switch {
			case t.mode == Exclusive && !t.listed.pointer:
				// lock.exclusive must be stored before the last look, because other clients of the
				// wire format look at nothing else.
				if err := l.claim(ctx, t, f.pointer); err != nil {
					return f, err
				}
				next = q.again.afterClaim()
			case t.mode == Exclusive && q.fence && t.fence == 0:
				// The fence is taken before the last look as well. So an acquirer that is paused after
				// that look has a smaller number than one that acquires the lock meanwhile.
				if t.fence, err = l.nextFence(ctx, t.id); err != nil {
					return f, err
				}
			default:
				t.leftPointer = f.pointer
				return f, nil
			}
		}
		if next.pause > 0 {
			if err := clock.Sleep(ctx, l.opts.Clock, l.jitter(next.pause)); err != nil {
				return f, err
			}
		}
	}
}

// barred returns the error of an acquirer that couldn't put its flag. If a look shows that another object
// is in the place of the flag's folder, or of lock.exclusive, the error is ErrHeld, because that object
// is an unreadable lock.
func (l *Locker) barred(ctx context.Context, t *attempt, s memory, err error) (findings, error) {
	if !errors.Is(err, store.ErrIrregular) {
		return findings{}, err
	}
	if f, lerr := l.look(ctx, t, s); lerr == nil && len(f.live) > 0 {
		return f, ErrHeld
	}
	return findings{}, err
}

// raise puts our flag, and lock.exclusive if the store keeps If-None-Match, so that the put can't
// overwrite another holder's. Both puts are sent at once, unless the flag's put has to prove the
// condition first.
func (l *Locker) raise(ctx context.Context, t *attempt) error {
	l.date(t)
	absent := &l.conditions.absent
	switch {
	case t.mode == Exclusive && absent.holds():
		claimed := make(chan error, 1)
		go func() { claimed <- l.claim(ctx, t, nil) }()
		err := l.putFlag(ctx, t)
		return fault.Join(err, <-claimed)
	case t.mode == Exclusive && absent.open():
		if err := l.proveAbsent(ctx, t); err != nil || !absent.holds() {
			return err
		}
		return l.claim(ctx, t, nil)
	default:
		return l.putFlag(ctx, t)
	}
}

func (l *Locker) putFlag(ctx context.Context, t *attempt) error {
	t.flag.maybe = true
	o, err := repeat(ctx, l, l.times.Timeout, "put "+t.flag.key, l.send(t, t.flag.key, store.PutOptions{}))
	if err != nil {
		if errors.Is(err, store.ErrPermission) || errors.Is(err, store.ErrNotFound) || errors.Is(err, store.ErrIrregular) {
			t.flag.maybe = false
		}
		return fault.While("writing the lock", err)
	}
	l.raised(t, o)
	return nil
}

// raised records the answer to a put of our flag.
func (l *Locker) raised(t *attempt, o store.Object) {
	answered := l.opts.Clock.Elapsed()
	t.flag.put, t.flag.etag, t.flag.sent = true, o.ETag, t.sent
	t.raised = pageTime{now: o.Now, asked: t.sent}
	if !o.ModTime.IsZero() {
		t.stamped(o.ModTime, answered)
	}
}

// maxRefused is how often an attempt accepts that the store refuses to write a lock.exclusive that no
// look lists. Such a store can take a deleted object for a stored one (versitygw: its delete marker).
// After that the attempt writes without a condition, unless the backend itself keeps the condition
// (decision 0004). Such a put can overwrite only a lock.exclusive that was put after our last look, and
// the look of its acquirer shows our flag.
const maxRefused = 3

// claim puts lock.exclusive if there is none, or replaces the stale or empty one that a look has
// shown. If another acquirer was faster, claim returns nil: the next look shows it.
func (l *Locker) claim(ctx context.Context, t *attempt, seen *entry) error {
	var opts store.PutOptions
	if seen != nil && !l.conditions.match.holds() {
		// Reading and reaping took some time: is the stale lock.exclusive still there?
		now, err := l.find(ctx, t.pointer.key)
		switch {
		case err != nil:
			return fault.While("looking at the lock", err)
		case now == nil:
			seen = nil
		case now.ETag != seen.ETag || now.Size != seen.Size:
			return nil // the next look judges it
		}
	}
	if t.listed.another {
		t.refusals = 0
	}
	switch {
	case seen == nil:
		spurious := t.refusals >= maxRefused && l.store.Properties().IfAbsent != store.Kept
		opts.IfAbsent = !l.conditions.absent.fails() && !spurious
	case l.conditions.match.holds():
		opts.IfMatch = seen.ETag
	}
	before := t.pointer.maybe
	t.pointer.maybe = true
	o, again, err := l.putExclusive(ctx, t, opts)
	switch {
	case err == nil:
		t.claimed(o.ETag)
		return nil
	case errors.Is(err, store.ErrConditionUnsupported) && t.looked: // the look found no live lock
		return l.overwrite(ctx, t)
	case errors.Is(err, store.ErrConditionUnsupported):
		t.pointer.maybe = before
		return nil
	case errors.Is(err, store.ErrPrecondition):
		// If the put was sent twice, its own first send can be the reason of the refusal. The next
		// look shows it.
		t.pointer.maybe = before || again
		if opts.IfAbsent {
			t.refusals++
		}
		return nil
	default:
		return fault.While("writing the lock", err)
	}
}

// overwrite puts lock.exclusive without a condition. t.pointer.maybe stays set, because an
// earlier send can still be applied.
func (l *Locker) overwrite(ctx context.Context, t *attempt) error {
	o, _, err := l.putExclusive(ctx, t, store.PutOptions{})
	if err != nil {
		return fault.While("writing the lock", err)
	}
	t.claimed(o.ETag)
	return nil
}

// putExclusive puts lock.exclusive. again reports that the put was sent more than once: then an
// earlier send can be applied at any time.
func (l *Locker) putExclusive(ctx context.Context, t *attempt, opts store.PutOptions) (o store.Object, again bool, err error) {
	var sends atomic.Int32
	send := l.send(t, t.pointer.key, opts)
	o, err = repeat(ctx, l, l.times.Timeout, "put "+t.pointer.key, func(ctx context.Context) (store.Object, error) {
		sends.Add(1)
		return send(ctx)
	})
	again = sends.Load() > 1
	t.pointer.twice = t.pointer.twice || again
	return o, again, err
}

// reap deletes the stale locks that conflict, and waits for the answers. So a holder that wakes and still
// finds its flag knows that no acquirer has taken it for stale.
//
// A stale lock.exclusive stays. An exclusive acquirer's claim overwrites it. A shared acquirer must not
// touch it, because a client of the original protocol can have put a live one there since it was read. A
// holder of this protocol that wakes misses its intent, which was reaped. A holder of the original
// protocol looks at neither object.
func (l *Locker) reap(ctx context.Context, t *attempt, f findings) error {
	var pointer, dead []*entry
	for _, e := range f.stale {
		if e.kind != kindExclusive {
			dead = append(dead, e)
		} else if t.mode == Exclusive {
			pointer = append(pointer, e)
		}
	}
	r := removal{l: l, progress: l.progress(t, EventReaping, len(dead))}
	for chunk := range slices.Chunk(dead, store.MaxBatch) {
		gone := r.remove(ctx, chunk)
		if len(r.failed) == 0 {
			gone, pointer = append(pointer, gone...), nil
		}
		l.reaped(t, f, gone)
	}
	if len(r.failed) > 0 {
		return unsure(fault.Errorf("removing stale locks: %w", fault.Join(r.failed...)))
	}
	l.reaped(t, f, pointer)
	return nil
}

// reaped reports entries that were removed.
func (l *Locker) reaped(t *attempt, f findings, gone []*entry) {
	if len(gone) > 0 {
		e := t.event(EventReaped)
		e.Holders = l.infos(gone, f)
		l.tell(e)
	}
}

// An empty file with this suffix can be a temporary file that another program is still writing. It is
// left alone for a day, which is more than the error of a clock.
const (
	temporary = ".tmp"
	abandoned = 24 * time.Hour
)

// unfinished reports whether an entry can be a file that another program is still writing.
func (e *entry) unfinished(st storeTime, now time.Duration) bool {
	age, ok := e.age(st, now)
	return strings.HasSuffix(e.Key, temporary) && (!ok || age <= abandoned)
}

// Fence makes Exclusive take a fencing number with the lock: see Lock.Fence. It costs three more
// requests: a get, a put and a list. The acquire fails with ErrFence on a store that doesn't itself
// keep If-Match and If-None-Match. Shared ignores the option.
func Fence() AcquireOption { return func(q *queue) { q.fence = true } }

// fenceBody is the JSON of the fence object.
type fenceBody struct {
	Fence uint64 `json:"fence"`
	ID    string `json:"id"` // the id of the lock that took the number
}

// nextFence adds one to the number in the fence object, and returns it. An acquirer whose flag and
// lock.exclusive are stored calls it before its last look. Of two holders, the later one puts its flag
// after the earlier one's last look, and so takes the larger number. nextFence fails on a store that
// doesn't keep conditions: there a late put of an earlier acquirer could set the number back.
func (l *Locker) nextFence(ctx context.Context, id string) (uint64, error) {
	p := l.store.Properties()
	if p.IfAbsent != store.Kept || !l.conditions.match.holds() {
		return 0, fmt.Errorf("%w: store %s has no conditional put that can be relied on", ErrFence, p.Name)
	}
	key := l.keys.fence()
	var refused error
	for range maxTries {
		opts := store.PutOptions{IfAbsent: true, Durable: true}
		var last fenceBody
		c, err := l.get(ctx, key)
		switch {
		case errors.Is(err, store.ErrNotFound):
		case err != nil:
			return 0, fmt.Errorf("%w: %w", ErrFence, err)
		default:
			if err := json.Unmarshal(c.raw, &last); err != nil || last.Fence == 0 {
				return 0, fmt.Errorf("%w: %s has no fencing number: write one into it that is larger than all before", ErrFence, key)
			}
			if last.ID == id {
				return last.Fence, nil // our put was applied, and its answer was lost
			}
			opts.IfAbsent, opts.IfMatch = false, c.object.ETag
		}
		next := fenceBody{Fence: last.Fence + 1, ID: id}
		if next.Fence == 0 {
			return 0, fmt.Errorf("%w: %s has the largest number already", ErrFence, key)
		}
		raw, err := json.Marshal(next)
		if err != nil {
			return 0, err
		}
		if _, err = l.put(ctx, key, raw, opts); err == nil {
			return next.Fence, nil
		}
		if !errors.Is(err, store.ErrPrecondition) {
			return 0, fmt.Errorf("%w: %w", ErrFence, err)
		}
		refused = err
	}
	return 0, fmt.Errorf("%w: %s was changed before each write, or was deleted and the store refuses to write it again: %w", ErrFence, key, refused)
}
