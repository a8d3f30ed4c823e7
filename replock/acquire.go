package replock

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync/atomic"
	"time"

	"github.com/repolock/repolock/internal/clock"
	"github.com/repolock/repolock/store"
)

// object is a lock object of our own, as we know it to be stored.
type object struct {
	key  string
	etag string
	// sent is when the put was sent that gave it its present body.
	sent time.Duration
	// put: a put of it was answered, and nobody was seen to have undone it.
	put bool
	// maybe: a put of it wasn't answered, and may have been or still be applied.
	maybe bool
	// twice: a put of it was sent again, so that the first may be applied when the second is gone.
	twice bool
	// listed: the last look saw it.
	listed bool
	// renewed: the refresh that is being tried has replaced it already.
	renewed bool
}

// try is one run of the protocol with one flag, from raising it until the lock
// is held or the flag withdrawn.
type try struct {
	mode      Mode
	operation string
	id        string
	body      body
	flag      object // the ground truth: a key that only we ever write
	exclusive object // lock.exclusive
	// place is ours in the queue: whoever waits under a later key is behind us.
	place string
	// polls: its looks only tell whether an attempt is worth it.
	polls bool

	// sent is when the first put of the flag was sent: the lease is dated from
	// it.
	sent     time.Duration
	deadline time.Duration
	st       storeTime
	dated    storeTime       // by the flag's mod time, from when that was seen first
	looked   bool            // at least once
	seen     clock.Reading   // when the last look was sent
	passed   *entry          // the stale lock.exclusive that is left in its place
	first    told            // by its first page
	page     told            // by its last page
	trips    *trips          // of the acquire that it belongs to
	parent   context.Context // of the lock's context
	underway underway        // puts
	// refusals is how often lock.exclusive was refused for being there, since a look showed it.
	refusals int

	mine
}

// mine are the ids and the flags' keys of all tries for one lock, whatever is
// left of them in the store.
type mine struct{ ids, keys map[string]bool }

func nothingYet() mine { return mine{map[string]bool{}, map[string]bool{}} }

func (l *Locker) newTry(mode Mode, operation string, m mine) (*try, error) {
	id, err := l.newID()
	if err != nil {
		return nil, err
	}
	now := l.opts.Clock.Now()
	key := l.keys.flag(mode, now, id)
	m = mine{maps.Clone(m.ids), maps.Clone(m.keys)} // others may be reading them
	m.ids[id], m.keys[key] = true, true
	return &try{
		mode: mode, operation: operation, id: id,
		flag:      object{key: key},
		exclusive: object{key: l.keys.exclusive()},
		place:     key,
		mine:      m,
		trips:     new(trips),
		body: body{
			Operation: operation, Holder: l.self.Holder(), AcquiredAt: now.UTC().Format(wireTime), IsShared: mode == Shared,
			ID: id, TTLSeconds: l.opts.TTL.Seconds(), State: stateAcquiring,
			HostID: l.self.HostID, BootID: l.self.BootID, PID: l.self.PID, PIDNamespace: l.self.PIDNamespace,
			TimeNamespace: l.self.TimeNamespace, PIDStart: l.self.PIDStart, User: l.self.User, Version: l.opts.Version, Metadata: l.opts.Metadata,
		},
	}, nil
}

// owns reports whether a listed object is ours by its key, or in the case of
// lock.exclusive, which others write too, by the ETag of what we put.
func (t *try) owns(o store.Object) bool {
	if o.Key == t.exclusive.key {
		t.refusals = 0
		t.exclusive.listed = t.exclusive.put && o.ETag != "" && o.ETag == t.exclusive.etag
		return t.exclusive.listed
	}
	return t.keys[o.Key]
}

// adopt takes a lock.exclusive for ours that carries our id: a put of ours that
// got no answer was applied.
func (t *try) adopt(e *entry) {
	t.claimed(e.ETag)
	t.exclusive.listed = true
}

// claimed notes that lock.exclusive has this try's body.
func (t *try) claimed(etag string) {
	t.exclusive.put, t.exclusive.maybe, t.exclusive.etag, t.exclusive.sent = true, true, etag, t.sent
}

// date begins the lease: the first put of the flag is about to be sent.
func (l *Locker) date(t *try) {
	t.sent = l.opts.Clock.Elapsed()
	t.deadline = t.sent + l.schedule.Deadline
	l.stamp(&t.body, t.st, t.sent)
}

// errLate: the answer that would have given us the lock came after the deadline
// of the lease.
var errLate error = unsure{errors.New("the store is too slow: taking the lock took longer than its lease")}

// late is errLate, and says if something else than slowness was the reason.
func (t *try) late() error {
	if t.refusals == 0 {
		return errLate
	}
	return fmt.Errorf("%w, in which it refused %d times to write %q with If-None-Match (412), and listed no such object", errLate, t.refusals, t.exclusive.key)
}

// maxTries is how often an acquire that came too late starts again, and maxSlow
// one that found the store too slow.
const (
	maxTries = 3
	maxSlow  = 2
)

// acquire takes a lock: PROTOCOL.md, Acquire. It tries until it has the lock,
// or somebody else certainly has it, or the store can't tell.
func (l *Locker) acquire(ctx context.Context, mode Mode, operation string, opts ...AcquireOption) (*Lock, error) {
	if err := CheckOperation(operation); err != nil {
		return nil, err
	}
	q := l.newQueue(ctx, mode, operation, opts)
	ctx, free := q.bound(ctx)
	defer free()
	defer q.leave(ctx)
	for late := 0; ; {
		t, err := q.newTry()
		if err != nil {
			return nil, err
		}
		lock, f, err := l.attempt(ctx, t, q.sight)
		switch {
		case err == nil:
			e := lock.event(EventAcquired, nil)
			e.Waited = q.waitedFor()
			l.tell(e)
			return lock, nil
		case ctx.Err() != nil:
			return nil, q.ended(ctx, t, f)
		case errors.Is(err, ErrHeld), errors.Is(err, errDoubt):
			late, q.failing = 0, 0
			if err := q.wait(ctx, t, f); err != nil {
				return nil, err
			}
		case errors.Is(err, errLate), errors.Is(err, ErrSlow), errors.Is(err, errUnlisted), l.opts.Clock.Elapsed() >= t.deadline:
			late++
			if late == maxTries || late == maxSlow && errors.Is(err, ErrSlow) {
				return nil, fmt.Errorf("acquiring the %s lock: %w", mode, err)
			}
		case q.endures(err):
			if err := q.wait(ctx, t, f); err != nil {
				return nil, err
			}
		default:
			return nil, err
		}
	}
}

// errDoubt: only locks that may be stale are in the way.
var errDoubt = errors.New("perhaps stale")

// attempt runs the protocol once, and leaves nothing behind unless it returns a
// lock. It says what it found in its way.
func (l *Locker) attempt(ctx context.Context, t *try, s sight) (*Lock, found, error) {
	f, err := l.enter(ctx, t, s)
	if err != nil {
		l.withdraw(ctx, t, err)
		return nil, f, err
	}
	lock, err := l.settle(ctx, t)
	if err != nil {
		l.withdraw(ctx, t, err)
	}
	return lock, f, err
}

// enter returns nil when nothing is in our way any more.
//
// Why that excludes all others: our flag was put, and the put answered, before
// the last look began; the look found no live flag that conflicts; and it was
// over before the deadline of the flag, so that the flag stood, live, throughout.
// Whoever conflicts and wasn't seen puts their flag after our look began, looks
// after that, and sees ours.
func (l *Locker) enter(ctx context.Context, t *try, s sight) (found, error) {
	if err := l.raise(ctx, t); err != nil {
		return l.barred(ctx, t, s, err)
	}
	var vanished, claims int // how often we looked again because of that
	var y yielding
	var swept bool
	for {
		f, err := l.look(ctx, t, s)
		var pause time.Duration
		switch {
		case err != nil:
			return f, fmt.Errorf("looking for other locks: %w", err)
		case l.opts.Clock.Elapsed() >= t.deadline:
			return f, t.late()
		case len(f.live) > 0:
			again := false
			if pause, again = l.again(ctx, t, f, &y); !again {
				return f, ErrHeld
			}
		case len(f.vanished) > 0:
			if vanished == maxAgain {
				f.live = f.vanished // a listing outweighs a read
				return f, ErrHeld
			}
			pause = firstAgain
			vanished++
		case len(f.doubtful) > 0:
			return f, errDoubt
		default:
			if err := l.reap(ctx, t, f); err != nil {
				return f, err
			}
			if t.mode == Exclusive && !swept {
				l.sweep(ctx, f.released)
				swept = true
			}
			if t.mode == Shared || t.exclusive.listed {
				t.passed = f.exclusive
				return f, nil
			}
			// lock.exclusive must be in place before the last look, because it
			// is all that other clients of the wire format look at.
			if t.refusals >= maxRefused {
				l.conditions.absent.refute()
			}
			proof := l.proveAbsent(ctx, t)
			err := l.claim(ctx, t, f.exclusive)
			<-proof
			if err != nil {
				return f, err
			}
			if claims > 0 { // somebody else was faster, or undid it
				pause = firstAgain << min(claims-1, 6)
			}
			claims++
		}
		if pause > 0 {
			if err := clock.Sleep(ctx, l.opts.Clock, l.jitter(pause)); err != nil {
				return f, err
			}
		}
	}
}

// barred says why our flag can't be put: what is in the place of its folder, or of
// lock.exclusive, and is neither, is an unreadable lock, and a look names it.
func (l *Locker) barred(ctx context.Context, t *try, s sight, err error) (found, error) {
	if !errors.Is(err, store.ErrIrregular) {
		return found{}, err
	}
	if f, lerr := l.look(ctx, t, s); lerr == nil && len(f.live) > 0 {
		return f, ErrHeld
	}
	return found{}, err
}

// settle turns a try that found nothing in its way into a held lock.
func (l *Locker) settle(ctx context.Context, t *try) (*Lock, error) {
	var fence uint64
	if t.mode == Exclusive && l.opts.Fence {
		var err error
		if fence, err = l.nextFence(ctx, t.id); err != nil {
			return nil, err
		}
	}
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	if err := l.holdable(t); err != nil {
		return nil, err
	}
	return l.hold(t, fence), nil
}

// raise puts our flag, and lock.exclusive beside it if that can be done without
// overwriting another's.
func (l *Locker) raise(ctx context.Context, t *try) error {
	l.date(t)
	if t.mode == Shared || !l.conditions.absent.holds() {
		return l.putFlag(ctx, t)
	}
	claimed := make(chan error, 1)
	go func() { claimed <- l.claim(ctx, t, nil) }()
	err := l.putFlag(ctx, t)
	return join(err, <-claimed)
}

func (l *Locker) putFlag(ctx context.Context, t *try) error {
	t.flag.maybe = true
	o, err := repeat(ctx, l, "put "+t.flag.key, l.send(t, t.flag.key, store.PutOptions{}))
	if err != nil {
		if errors.Is(err, store.ErrPermission) || errors.Is(err, store.ErrNotFound) || errors.Is(err, store.ErrIrregular) {
			t.flag.maybe = false
		}
		return fmt.Errorf("writing the lock: %w", err)
	}
	answered := l.opts.Clock.Elapsed()
	t.flag.put, t.flag.etag, t.flag.sent = true, o.ETag, t.sent
	if !o.ModTime.IsZero() {
		t.dated = storeTime{o.ModTime, answered}
		t.st = t.dated
	}
	return nil
}

// maxRefused is how often a store may refuse to write a lock.exclusive that no look lists.
// Then it takes something else for one (versitygw a delete marker), and from there on this
// process writes without a condition, as on a store that has none (decision 0004). What that
// may overwrite is of an acquirer who comes after our last look, and sees our flag.
const maxRefused = 3

// claim puts lock.exclusive where there is none, or in place of what a look saw
// there: stale, or empty. That somebody else was faster is no error: the next
// look tells who.
func (l *Locker) claim(ctx context.Context, t *try, seen *entry) error {
	var opts store.PutOptions
	if seen != nil && !l.conditions.match.holds() {
		// What was seen to be stale was read and reaped for some time: is it still there?
		now, err := l.find(ctx, t.exclusive.key)
		switch {
		case err != nil:
			return fmt.Errorf("looking at the lock: %w", err)
		case now == nil:
			seen = nil
		case now.ETag != seen.ETag || now.Size != seen.Size:
			return nil // the next look judges it
		}
	}
	switch {
	case seen == nil:
		opts.IfAbsent = !l.conditions.absent.fails()
	case l.conditions.match.holds():
		opts.IfMatch = seen.ETag
	}
	before := t.exclusive.maybe
	t.exclusive.maybe = true
	o, again, err := l.putExclusive(ctx, t, opts)
	switch {
	case err == nil:
		t.claimed(o.ETag)
		return nil
	case errors.Is(err, store.ErrConditionUnsupported):
		t.exclusive.maybe = before
		if !t.looked {
			return nil
		}
		return l.overwrite(ctx, t)
	case errors.Is(err, store.ErrPrecondition):
		// After a send that got no answer it may be our own put that is in the
		// way: the next look tells it by the id.
		t.exclusive.maybe = before || again
		if opts.IfAbsent {
			t.refusals++
		}
		return nil
	default:
		return fmt.Errorf("writing the lock: %w", err)
	}
}

// proveAbsent finds out, beside the put of lock.exclusive, whether the store heeds
// If-None-Match: it must refuse to write our flag, which is there. If it writes
// it, no harm is done: nobody else writes that key, and we don't hold it yet.
func (l *Locker) proveAbsent(ctx context.Context, t *try) <-chan struct{} {
	done := make(chan struct{})
	if !l.conditions.absent.open() {
		close(done)
		return done
	}
	go func() {
		defer close(done)
		o, err := once(ctx, l.timeout(), "put "+t.flag.key, l.send(t, t.flag.key, store.PutOptions{IfAbsent: true}))
		if err == nil {
			t.flag.etag = o.ETag
		}
		l.conditions.absent.judge(err)
	}()
	return done
}

// putExclusive puts lock.exclusive, and reports whether that was sent again: then an earlier
// one may be applied at any time.
func (l *Locker) putExclusive(ctx context.Context, t *try, opts store.PutOptions) (o store.Object, again bool, err error) {
	var sends atomic.Int32
	send := l.send(t, t.exclusive.key, opts)
	o, err = repeat(ctx, l, "put "+t.exclusive.key, func(ctx context.Context) (store.Object, error) {
		sends.Add(1)
		return send(ctx)
	})
	again = sends.Load() > 1
	t.exclusive.twice = t.exclusive.twice || again
	return o, again, err
}

// overwrite puts lock.exclusive without a condition, after a look that found
// nothing live there.
func (l *Locker) overwrite(ctx context.Context, t *try) error {
	t.exclusive.maybe = true
	o, _, err := l.putExclusive(ctx, t, store.PutOptions{})
	if err != nil {
		return fmt.Errorf("writing the lock: %w", err)
	}
	t.claimed(o.ETag)
	return nil
}

func (l *Locker) heldError(t *try, f found) *HeldError {
	in := f.live
	if len(in) == 0 {
		in = f.doubtful
	}
	return &HeldError{Mode: t.mode, Holders: merge(l.infos(in, f.st, f.now)), More: f.more}
}
