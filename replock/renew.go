package replock

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/repolock/repolock/internal/fault"
	"github.com/repolock/repolock/internal/lease"
	"github.com/repolock/repolock/internal/text"
	"github.com/repolock/repolock/replock/internal/verdict"
	"github.com/repolock/repolock/replock/internal/wire"
	"github.com/repolock/repolock/store"
)

// renewer replaces the objects of one lock by their next versions, and checks that they are still stored. A held lock
// does this at each refresh, and a resumed one when it takes lock.exclusive over. The methods store their results in
// the object that is their argument.
type renewer struct {
	*lease.Term // nil before the lock is held
	l           *Locker
	t           *attempt                          // the attempt that put the objects
	now         atomic.Pointer[verdict.StoreTime] // the best lower bound of the store's clock
	seq         atomic.Uint64                     // Body.Seq of the last put
	dated       atomic.Int64                      // mod time of the flag in Unix nanoseconds; 0 if unknown; only date and sighted set it
	flags       lineage                           // the versions of the flag
	proven      func() bool                       // whether a refresh can follow a look that shows the object as aged; nil: it can
	objectsSeen atomic.Int64                      // when the last look was sent, if it showed our objects; else 0: see looks.pointerSeen

	mu    sync.Mutex       // guards probe and, until the refresher has ended, the objects of a held lock's attempt
	probe []*verdict.Entry // test flags of putMissing that might still be stored
}

// begin starts from the attempt that put the objects: its store time, and the date of its flag. Only an answer or a look
// of that attempt dates the flag's first put. A later look might show that the store has applied the put again.
func (r *renewer) begin(l *Locker, t *attempt) {
	r.l, r.t = l, t
	r.now.Store(&t.st)
	r.flags.answered = t.flag.etag
	if mod := t.dated.At; !mod.IsZero() {
		r.flags.before = mod.UnixNano()
		r.dated.Store(mod.UnixNano())
		r.sighted(t.flag.etag, mod)
	}
}

// sighted records the mod time of the flag's version with this ETag.
func (r *renewer) sighted(etag string, mod time.Time) {
	switch {
	case mod.IsZero():
	case r.flags.unbroken(etag, mod) || r.flags.inTime(etag, mod, r.l.opts.TTL): // even if the store's clock was set since
		r.dated.Store(mod.UnixNano())
		r.flags.seen(etag, mod)
	case r.dated.Load() != 0 && r.date(mod): // else no date shows whether this version is a late one
		r.flags.seen(etag, mod)
	}
}

// date records a mod time of the flag, unless the version before was stale by that time. In that case another acquirer
// might have removed the flag as stale, and a refresh that was applied late might have put it back. It reports whether
// it has recorded the time, or knows a later one.
func (r *renewer) date(mod time.Time) bool {
	if r.reapable(mod) {
		return false
	}
	r.dated.Store(max(r.dated.Load(), mod.UnixNano()))
	return true
}

// reapable reports whether others might have judged the flag stale before it got this mod time. A flag without a date
// shows nothing, so reapable returns false. It compares times of the store's clock, because our clocks don't count a
// hypervisor's pause. The store truncates the times, and the margin of the other clients allows for that.
func (r *renewer) reapable(mod time.Time) bool {
	last := r.dated.Load()
	return last != 0 && mod.UnixNano()-last > int64(r.l.opts.TTL)
}

// end returns the deadline of the lease.
func (r *renewer) end() time.Duration {
	if r.Term == nil {
		return r.t.deadline
	}
	return r.Deadline()
}

// renew replaces one of our objects. Its results are in o even if it fails. unique means that no other client writes
// the key. Then a put of the key can test whether the server honours If-Match.
func (r *renewer) renew(ctx context.Context, o *object, unique bool) error {
	if r.l.conditions.matchKept && o.etag != "" {
		return r.replace(ctx, o)
	}
	return r.lookAndPut(ctx, o, unique)
}

// replace renews with If-Match on a backend that itself keeps it. If the store accepts the put, the object was stored
// until then.
func (r *renewer) replace(ctx context.Context, o *object) error {
	err := r.put(ctx, o, store.PutOptions{IfMatch: o.etag})
	if errors.Is(err, store.ErrPrecondition) {
		// The store might have applied an earlier refresh of ours although its answer was lost. Then the object has a
		// body that we sent, and its ETag is the next condition.
		if err := r.ours(ctx, o); err != nil {
			return err
		}
		err = r.put(ctx, o, store.PutOptions{IfMatch: o.etag})
		if errors.Is(err, store.ErrPrecondition) {
			return fault.Errorf("%s was changed between two requests: %w", o.key, err)
		}
	}
	return err
}

// lookAndPut renews on a server that only claims If-Match, or has none. It looks whether the object is stored, and then
// puts it. It also sends a proven If-Match, but that never replaces the look. Some servers write an object that was
// deleted, whatever the condition (minio/minio#21526), and would restore a broken lock.
func (r *renewer) lookAndPut(ctx context.Context, o *object, unique bool) error {
	ctx, done := store.Preparing(ctx, o.key)
	defer done()
	began := r.l.opts.Clock.Elapsed()
	page, err := r.listed(ctx, o.key)
	if err != nil {
		return err
	}
	seen, _ := verdict.InPage(page, o.key)
	if err := r.confirmSeen(ctx, o, seen); err != nil {
		return err
	}
	match := &r.l.conditions.match
	if !match.holds() && r.proven != nil && r.aged(page, o, seen.ModTime) && !r.proven() {
		return errAged
	}
	proves, quick := false, 3*r.t.trips.slowest()+time.Second
	if unique && match.open() && o.etag != "" {
		looked := r.l.opts.Clock.Elapsed()
		proves = r.refuses(ctx, o)
		if r.l.opts.Clock.Elapsed()-looked > quick {
			return r.lookAndPut(ctx, o, false) // the object can have been broken since the look
		}
	}
	// If this process was stopped since the look, its put could restore an object that was broken meanwhile.
	if took := r.l.opts.Clock.Elapsed() - began; took > max(r.l.times.Failure, quick) {
		return fmt.Errorf("%s was not refreshed, because looking at it took %v", o.key, took.Round(time.Second))
	}
	opts := store.PutOptions{Replaces: o.etag}
	if (match.holds() || proves) && o.etag != "" {
		opts = store.PutOptions{IfMatch: o.etag}
	}
	err = r.put(ctx, o, opts)
	if proves {
		match.learnFrom(err, true)
	}
	if proves && err != nil && match.fails() { // the server refuses a condition that is met
		return r.lookAndPut(ctx, o, unique)
	}
	if errors.Is(err, store.ErrPrecondition) {
		// It was deleted since the look, or an earlier put of ours was applied late.
		if _, err := r.confirm(ctx, o); err != nil {
			return err
		}
		return fault.Errorf("%s was changed between two requests: %w", o.key, err)
	}
	return err
}

// put sends the next version of an object.
func (r *renewer) put(ctx context.Context, o *object, opts store.PutOptions) error {
	b := r.t.body
	b.Seq, b.State = r.seq.Add(1), wire.StateHeld
	now, sent := *r.now.Load(), r.l.opts.Clock.Elapsed()
	r.l.stamp(&b, now, sent)
	body := b.Encode()
	r.t.bodies.note(bodyMark(o.key, body), sent)
	put, err := r.write(ctx, o.key, body, opts)
	if err == nil {
		o.etag, o.sent = put.ETag, sent
		if o.key == r.t.flag.key {
			replaced := ""
			if r.l.conditions.match.holds() {
				replaced = opts.IfMatch
			}
			r.flags.stored(put.ETag, replaced, r.dated.Load())
			r.sighted(put.ETag, put.ModTime)
			if now.Known() { // the store applied the put after this time, even if the answer has none
				r.date(now.When(sent))
			}
		}
	}
	return err
}

// maxAsk bounds one request of a held lock with a long ttl. A connection that has hung for this long won't answer any
// more.
const maxAsk = 30 * time.Second

// timeout returns the timeout of one request: a third of the time before the deadline, so that other requests can
// follow one that hangs. It is long enough for a store that answers as slowly as it did during the acquire. It is at
// least a second, but no more than half of the time, so that the first request of a late acquire isn't its last.
func (r *renewer) timeout() time.Duration {
	left := r.end() - r.l.opts.Clock.Elapsed()
	return max(min(left/3, r.l.times.Failure, maxAsk), 2*r.t.trips.slowest(), min(time.Second, left/2))
}

// ask sends one request of a held lock. It doesn't repeat it.
func ask[T any](ctx context.Context, r *renewer, what string, send func(context.Context) (T, error)) (T, error) {
	return once(ctx, what, send)(r.timeout())
}

// write sends one put. It sends nothing once Release has begun, because a put must not reach the store after the
// deletes.
func (r *renewer) write(ctx context.Context, key string, body []byte, opts store.PutOptions) (store.Object, error) {
	if r.Term != nil && r.Releasing() {
		return store.Object{}, ErrReleased
	}
	return ask(ctx, r, "put "+key, func(ctx context.Context) (store.Object, error) {
		return r.l.store.Put(ctx, key, body, opts)
	})
}

// confirm returns the object as a listing shows it, or an error unless it is ours.
func (r *renewer) confirm(ctx context.Context, o *object) (*store.Object, error) {
	seen, err := r.find(ctx, o.key)
	if err != nil {
		return nil, err
	}
	return seen, r.confirmSeen(ctx, o, seen)
}

// find returns one of our objects as a listing shows it, or nil.
func (r *renewer) find(ctx context.Context, key string) (*store.Object, error) {
	page, err := r.listed(ctx, key)
	seen, _ := verdict.InPage(page, key)
	return seen, err
}

// listed returns the page of a listing that shows one of our objects, if it is stored.
func (r *renewer) listed(ctx context.Context, key string) (store.Page, error) {
	page, err := ask(ctx, r, "list "+key, func(ctx context.Context) (store.Page, error) { return r.l.listed(ctx, key) })
	r.learn(verdict.StoreTime{At: page.Now, Elapsed: r.l.opts.Clock.Elapsed()})
	return page, err
}

// aged reports whether an object is so old on a page, by the store's clock, that others might judge it stale, although
// by our clock it is not.
func (r *renewer) aged(page store.Page, o *object, mod time.Time) bool {
	age := page.Now.Sub(mod)
	return !page.Now.IsZero() && !mod.IsZero() && r.l.store.Properties().StoreClock &&
		age >= r.l.opts.TTL-verdict.Margin && age > r.l.opts.Clock.Elapsed()-o.sent+verdict.Margin
}

// learn records a reading of the store's clock if it is a better lower bound than the present one.
func (r *renewer) learn(now verdict.StoreTime) {
	if was := *r.now.Load(); now.Known() && (!was.Known() || now.When(now.Elapsed).After(was.When(now.Elapsed))) {
		r.now.Store(&now)
	}
}

// confirmSeen returns nil if the object is ours. seen is the object as a listing has shown it.
func (r *renewer) confirmSeen(ctx context.Context, o *object, seen *store.Object) error {
	if seen != nil && seen.Key == r.t.flag.key {
		r.sighted(seen.ETag, seen.ModTime)
	}
	if seen != nil && seen.Size != 0 && seen.ETag != "" && seen.ETag == o.etag {
		return nil
	}
	r.objectsSeen.Store(0)
	if seen == nil {
		return r.deleted(o.key)
	}
	return r.ours(ctx, o)
}

// ours reads an object that isn't as we last wrote it. If we have sent that body, it is a put of ours whose answer was
// lost, and was sent when we remember, whatever the body's fields say. Otherwise the lock was broken or copied.
func (r *renewer) ours(ctx context.Context, o *object) error {
	c, err := ask(ctx, r, "get "+o.key, r.l.fetch(o.key))
	switch {
	case errors.Is(err, store.ErrNotFound):
		return r.deleted(o.key)
	case errors.Is(err, store.ErrTooLarge):
		return r.broken(o.key, "it was replaced by an object that isn't a lock")
	case err != nil:
		return err
	}
	if sent, ours := r.t.bodies.find(bodyMark(o.key, c.raw)); ours {
		o.etag, o.sent = c.object.ETag, sent
		return nil
	}
	l, err := wire.Decode(c.raw)
	switch {
	case errors.Is(err, wire.ErrEmptied):
		return r.broken(o.key, "it was emptied, by break-lock or by hand")
	case err != nil:
		return r.broken(o.key, "it was replaced by an object that isn't our lock")
	case r.t.ids[l.ID]:
		return r.copied(o.key)
	}
	return r.broken(o.key, fmt.Sprintf("it was replaced by %s, operation %s", text.Or(l.Holder, "unknown"), text.Or(l.Operation, "unknown")))
}

// copied returns the loss of a lock with whose id another process has written an object.
func (r *renewer) copied(key string) *LostError {
	lost := r.broken(key, "another process continues with this lock: was this machine cloned or restored?")
	lost.Copied = true
	return lost
}

// deleted returns the loss of a lock whose object is gone. If the lease had ended on the store's clock, an acquirer
// might have deleted the object as stale. Before that, only a break deletes it.
func (r *renewer) deleted(key string) *LostError {
	now := r.now.Load()
	if now.Known() && r.reapable(now.When(r.l.opts.Clock.Elapsed())) {
		return r.broken(key, stoodStillOr+"another client deleted the lock")
	}
	return r.broken(key, "it was deleted, by break-lock or by hand")
}

func (r *renewer) broken(key, reason string) *LostError {
	return &LostError{Mode: r.t.mode, Key: key, Reason: reason, Definite: true}
}

// wrongETag is an ETag that none of our bodies has.
const wrongETag = "00000000000000000000000000000000"

// maxProofs is the number of undecided proofs after which we no longer rely on a condition.
const maxProofs = 3

// refuses reports whether the server has refused both puts that If-Match must prevent: a put of our own flag with a
// wrong ETag, and a put of a missing key with any ETag. The caller must have just seen the flag. Otherwise a server
// that ignores the condition could restore a deleted flag. A proof that fails costs only time.
func (r *renewer) refuses(ctx context.Context, flag *object) bool {
	ctx, cancel := context.WithTimeout(ctx, max(r.timeout()/3, 2*r.t.trips.slowest()))
	defer cancel()
	refused := &r.l.conditions.refused
	var missing, wrong bool // the server applied the put
	var wg sync.WaitGroup
	wg.Go(func() { missing = refused.missing.try(func() error { return r.putMissing(ctx) }) })
	wrong = refused.wrong.try(func() error { return r.put(ctx, flag, store.PutOptions{IfMatch: wrongETag}) })
	wg.Wait()
	both := refused.missing.Load() && refused.wrong.Load()
	if missing || wrong || !both && r.l.conditions.proofs.Add(1) >= maxProofs {
		r.l.conditions.match.learn(false)
	}
	return both
}

// putMissing puts an empty flag, which counts as released, under a missing key with an If-Match. A server that stores
// the flag ignores the condition. Unless the server has refused the put, putMissing deletes the flag. If the deletion
// fails, Release repeats it.
func (r *renewer) putMissing(ctx context.Context) error {
	id, err := r.l.newID()
	if err != nil {
		return err
	}
	key := r.l.keys.SharedFlag(r.l.opts.Clock.Now(), id)
	_, err = r.write(ctx, key, nil, store.PutOptions{IfMatch: wrongETag})
	if errors.Is(err, store.ErrPrecondition) || errors.Is(err, store.ErrConditionUnsupported) || errors.Is(err, ErrReleased) {
		return err
	}
	if _, derr := ask(ctx, r, "delete "+key, r.l.delete(key)); derr != nil {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.probe = append(r.probe, &verdict.Entry{Object: store.Object{Key: key}})
	}
	return err
}

func (r *renewer) probes() []*verdict.Entry {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.probe
}
