package replock

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/repolock/repolock/internal/clock"
	"github.com/repolock/repolock/internal/fault"
	"github.com/repolock/repolock/internal/lease"
	"github.com/repolock/repolock/internal/refresh"
	"github.com/repolock/repolock/internal/text"
	"github.com/repolock/repolock/store"
)

// term is a lock from its acquire, or from a resume, until its loss or its release. It implements
// lease.Owner. It has the objects under one id. A resume begins another term.
type term struct {
	renewer              // its objects change with each refresh
	shown   atomic.Int64 // when the last look that showed our objects was sent: see sight.shown
	others  sightings
}

// hold begins to refresh a lock that was just acquired or resumed.
func (l *Locker) hold(t *attempt) *term {
	k := &term{others: newSightings(t)}
	k.begin(l, t)
	k.Term = lease.New(lease.Terms{
		Schedule: l.times, Clock: l.opts.Clock, Sent: t.sent, Seen: t.seen, Parent: t.parent, Drain: k.timeout(), Early: l.earlier,
		Attempt: k.refresh, Watch: k.watch, Failed: k.failed, Extended: func() { k.tell(EventRefreshed, nil) },
		Loss: k.loss, Lost: func(err error) { k.tell(EventLost, err) }, // a Flush after the context's end waits for this event
	})
	k.Begin()
	return k
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

// failed reports a failure of the refresher as events.
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
	return e
}

func (k *term) tell(kind EventKind, err error) { k.l.tell(k.event(kind, err)) }

// About implements lease.Owner.
func (k *term) About() lease.About {
	return lease.About{ID: k.t.id, Key: k.t.flag.key, Operation: k.t.operation, Exclusive: k.t.mode == Exclusive, Fence: k.t.fence}
}

// Resumed implements lease.Owner.
func (k *term) Resumed() { k.tell(EventResumed, nil) }

// Check implements Lock.Check.
func (k *term) Check(ctx context.Context) error {
	err := k.look(ctx)
	if errors.Is(err, errAgain) && clock.Sleep(ctx, k.l.opts.Clock, transient) == nil {
		err = k.look(ctx)
	}
	if errors.Is(err, ErrLost) {
		k.Fail(err)
	}
	if errors.Is(err, errAgain) {
		err = nil // our objects are stored, and the conflicting ones have just come
	}
	return k.usable(k.State(err))
}

// usable returns an error if the lock is held, but the parent of its context has ended.
func (k *term) usable(err error) error {
	if err == nil && k.Context().Err() != nil {
		return fmt.Errorf("the context that the %s lock was acquired with, or its Parent, has ended: %w", k.t.mode, whyEnded(k.Context()))
	}
	return err
}

// refresh is one attempt to renew the lease of a held lock: docs/evidence/protocol.md, Refresh. If one of
// our objects was gone before its next version replaced it, the lock was broken, and is lost for
// good. An attempt that failed can have renewed one of the two objects. The next attempt renews
// only the other one, unless it begins anew. refresh itself doesn't change the lock: see
// refresh.Renewal.
func (k *term) refresh(ctx context.Context, anew bool) (refresh.Renewal, error) {
	began := clock.Read(k.l.opts.Clock)
	flag, pointer := k.objects()
	all := k.ofMode(&flag, &pointer)
	whole := true
	for _, o := range all {
		o.renewed = o.renewed && !anew
		whole = whole && !o.renewed
	}
	errs := k.renewAll(ctx, all)
	for _, err := range errs {
		if lost, ok := errors.AsType[*LostError](err); ok {
			return refresh.Renewal{}, refresh.Stop(lost)
		}
	}
	renewed := refresh.Renewal{Sent: flag.sent}
	if k.t.mode == Exclusive {
		renewed.Sent = min(flag.sent, pointer.sent)
	}
	err := fault.Join(errs...)
	renewed.Commit = func() {
		k.commit(flag, pointer)
		if whole && err == nil {
			k.saw(began)
		}
	}
	return renewed, err
}

// renewAll renews the objects that were not renewed yet.
func (k *term) renewAll(ctx context.Context, all []*object) []error {
	errs := make([]error, len(all))
	var wg sync.WaitGroup
	for i, o := range all {
		if !o.renewed {
			wg.Go(func() {
				errs[i] = k.renew(ctx, o, i == 0)
				o.renewed = errs[i] == nil
			})
		}
	}
	wg.Wait()
	return errs
}

// objects returns copies of our two objects as we last saw them.
func (k *term) objects() (flag, pointer object) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.t.flag, k.t.pointer
}

// ofMode returns the objects that a lock of this mode has.
func (k *term) ofMode(flag, pointer *object) []*object {
	if k.t.mode == Exclusive {
		return []*object{flag, pointer}
	}
	return []*object{flag}
}

// commit keeps the results of an attempt.
func (k *term) commit(flag, pointer object) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.t.flag.etag, k.t.flag.sent, k.t.flag.renewed = flag.etag, flag.sent, flag.renewed
	k.t.pointer.etag, k.t.pointer.sent, k.t.pointer.renewed = pointer.etag, pointer.sent, pointer.renewed
}

// renewer replaces the objects of one lock by their next versions, and checks that they are still
// stored. A held lock does this at each refresh, a resumed one when it takes lock.exclusive over.
// The methods keep their results in the object that they get.
type renewer struct {
	*lease.Term // nil before the lock is held
	l           *Locker
	t           *attempt                  // the attempt that has the objects
	now         atomic.Pointer[storeTime] // the best lower bound of the store's clock
	seq         atomic.Uint64             // seq of the last body
	dated       atomic.Int64              // mod time of the flag in Unix nanoseconds, set by date; 0 if unknown

	mu    sync.Mutex // guards probe and, until the refresher has ended, the objects of a held lock's attempt
	probe []*entry   // flags of putMissing that might be left in the store
}

// begin sets the Locker and the attempt.
func (r *renewer) begin(l *Locker, t *attempt) {
	r.l, r.t = l, t
	r.now.Store(&t.st)
	r.date(t.dated.at)
}

// date notes a mod time of the flag, unless the version before was stale by that time. Then another
// acquirer can have removed the flag as stale, and a refresh that was applied late can have put it back.
func (r *renewer) date(mod time.Time) {
	if !mod.IsZero() && (r.dated.Load() == 0 || !r.reapable(mod)) {
		r.dated.Store(max(r.dated.Load(), mod.UnixNano()))
	}
}

// reapable reports whether others can have seen the flag as stale before it got this mod time. It
// compares times of the store's clock, because ours don't count a hypervisor's pause. The store truncates
// them, and the margin of the other clients allows for that.
func (r *renewer) reapable(mod time.Time) bool {
	last := r.dated.Load()
	return last == 0 || mod.UnixNano()-last > int64(r.l.opts.TTL)
}

// end returns the deadline of the lease.
func (r *renewer) end() time.Duration {
	if r.Term == nil {
		return r.t.deadline
	}
	return r.Deadline()
}

// renew replaces one of our objects. Its results are in o even if it fails. unique means that no
// other client writes the key, so that If-Match can be proven on it.
func (r *renewer) renew(ctx context.Context, o *object, unique bool) error {
	if r.l.conditions.matchKept && o.etag != "" {
		return r.replace(ctx, o)
	}
	return r.lookAndPut(ctx, o, unique)
}

// replace renews with If-Match on a backend that itself keeps it. That proves that the object was
// stored.
func (r *renewer) replace(ctx context.Context, o *object) error {
	err := r.put(ctx, o, store.PutOptions{IfMatch: o.etag})
	if errors.Is(err, store.ErrPrecondition) {
		// An earlier refresh of ours can have been applied although its answer was lost. Then the
		// object has our id, and its ETag is the next condition.
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

// lookAndPut renews on a server that only claims If-Match, or has none: it looks whether the object is
// stored, and then puts. A proven If-Match is used as well, and never replaces the look. Some servers
// write an object that was deleted, whatever the condition (minio/minio#21526), and would put a broken
// lock back.
func (r *renewer) lookAndPut(ctx context.Context, o *object, unique bool) error {
	began := r.l.opts.Clock.Elapsed()
	if err := r.confirm(ctx, o); err != nil {
		return err
	}
	match := &r.l.conditions.match
	proves := unique && match.open() && o.etag != "" && r.refuses(ctx, o)
	// If this process was stopped since the look, its put could restore an object that was broken
	// meanwhile.
	if took := r.l.opts.Clock.Elapsed() - began; took > max(r.l.times.Failure, 3*r.t.trips.slowest()+time.Second) {
		return fmt.Errorf("%s was not refreshed, because looking at it took %v", o.key, took.Round(time.Second))
	}
	opts := store.PutOptions{Replaces: o.etag}
	if (match.holds() || proves) && o.etag != "" {
		opts = store.PutOptions{IfMatch: o.etag}
	}
	err := r.put(ctx, o, opts)
	if proves {
		match.learnFrom(err, true)
	}
	if proves && err != nil && match.fails() { // the server refuses a condition that is met
		return r.lookAndPut(ctx, o, unique)
	}
	if errors.Is(err, store.ErrPrecondition) {
		// It was deleted since the look, or an earlier put of ours was applied late.
		if err := r.confirm(ctx, o); err != nil {
			return err
		}
		return fault.Errorf("%s was changed between two requests: %w", o.key, err)
	}
	return err
}

// put sends the next version of an object.
func (r *renewer) put(ctx context.Context, o *object, opts store.PutOptions) error {
	b := r.t.body
	b.Seq, b.State = r.seq.Add(1), StateHeld
	now, sent := *r.now.Load(), r.l.opts.Clock.Elapsed()
	r.l.stamp(&b, now, sent)
	put, err := r.write(ctx, o.key, b.encode(), opts)
	if err == nil {
		o.etag, o.sent = put.ETag, sent
		if o.key == r.t.flag.key {
			r.date(put.ModTime)
			if now.known() { // the put was applied after this time, even if the answer has none
				r.date(now.when(sent))
			}
		}
	}
	return err
}

// maxAsk bounds one request of a held lock with a long ttl. A connection that has hung for this
// long won't answer any more.
const maxAsk = 30 * time.Second

// timeout returns the timeout of one request: a third of the time before the deadline, so that other
// requests can follow one that hangs. It is never so short that it cuts off a store which answers as
// slowly as it did during the acquire.
func (r *renewer) timeout() time.Duration {
	left := r.end() - r.l.opts.Clock.Elapsed()
	return max(min(left/3, r.l.times.Failure, maxAsk), 2*r.t.trips.slowest(), time.Second)
}

// ask sends one request of a held lock, once.
func ask[T any](ctx context.Context, r *renewer, what string, send func(context.Context) (T, error)) (T, error) {
	return once(ctx, what, send)(r.timeout())
}

// write puts once. It sends nothing once Release has begun, because a put must not come after the
// deletes.
func (r *renewer) write(ctx context.Context, key string, body []byte, opts store.PutOptions) (store.Object, error) {
	if r.Term != nil && r.Releasing() {
		return store.Object{}, ErrReleased
	}
	return ask(ctx, r, "put "+key, func(ctx context.Context) (store.Object, error) {
		return r.l.store.Put(ctx, key, body, opts)
	})
}

// confirm returns nil if the object is stored and ours.
func (r *renewer) confirm(ctx context.Context, o *object) error {
	seen, err := r.find(ctx, o.key)
	if err != nil {
		return err
	}
	return r.confirmSeen(ctx, o, seen)
}

// find returns one of our objects as a listing shows it, or nil.
func (r *renewer) find(ctx context.Context, key string) (*store.Object, error) {
	page, err := ask(ctx, r, "list "+key, func(ctx context.Context) (store.Page, error) { return r.l.listed(ctx, key) })
	r.learn(storeTime{page.Now, r.l.opts.Clock.Elapsed()})
	seen, _ := inPage(page, key)
	return seen, err
}

// learn notes a reading of the store's clock if it is a better lower bound.
func (r *renewer) learn(now storeTime) {
	if was := *r.now.Load(); now.known() && (!was.known() || now.when(now.elapsed).After(was.when(now.elapsed))) {
		r.now.Store(&now)
	}
}

// confirmSeen returns nil if seen, the object as a listing has shown it, is ours.
func (r *renewer) confirmSeen(ctx context.Context, o *object, seen *store.Object) error {
	if seen != nil && seen.Key == r.t.flag.key {
		r.date(seen.ModTime)
	}
	switch {
	case seen == nil:
		return r.deleted(o.key)
	case seen.Size == 0 || seen.ETag == "" || seen.ETag != o.etag:
		return r.ours(ctx, o)
	default:
		return nil
	}
}

// ours reads an object that is not as we last wrote it. If it has our id, it is a put of ours whose
// answer was lost. Otherwise the lock was broken.
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
	l, err := decode(c.raw)
	switch {
	case errors.Is(err, errReleased):
		return r.broken(o.key, "it was emptied, by break-lock or by hand")
	case err != nil:
		return r.broken(o.key, "it was replaced by an object that isn't our lock")
	case !r.t.ids[l.ID]:
		return r.broken(o.key, fmt.Sprintf("it was replaced by %s, operation %s", text.Or(l.Holder, "unknown"), text.Or(l.Operation, "unknown")))
	}
	o.etag, o.sent = c.object.ETag, time.Duration(l.RefreshedBoot)
	return nil
}

// deleted returns the loss of a lock whose object is gone. If the lease had ended on the store's
// clock, an acquirer can have deleted the object as stale. Before that, only a break deletes it.
func (r *renewer) deleted(key string) *LostError {
	now := r.now.Load()
	if now.known() && r.dated.Load() != 0 && r.reapable(now.when(r.l.opts.Clock.Elapsed())) {
		return r.broken(key, "this machine stood still until the lease had ended, and another client deleted the lock")
	}
	return r.broken(key, "it was deleted, by break-lock or by hand")
}

func (r *renewer) broken(key, reason string) *LostError {
	return &LostError{Mode: r.t.mode, Key: key, Reason: reason, Definite: true}
}
