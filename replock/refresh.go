package replock

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/repolock/repolock/internal/clock"
	"github.com/repolock/repolock/internal/refresh"
	"github.com/repolock/repolock/store"
)

// refresh is one attempt to renew the lease of a held lock: PROTOCOL.md, Hold.
// It proves that each of our objects was still there until it was replaced by
// its next version; if one wasn't, the lock was broken, and is lost for good.
// Unless it begins anew, an object that was renewed by an attempt which failed on
// the other one isn't renewed again.
//
// It changes nothing of the lock by itself: see refresh.Renewal.
func (k *Lock) refresh(ctx context.Context, anew bool) (refresh.Renewal, error) {
	began := clock.Read(k.l.opts.Clock)
	flag, exclusive := k.objects()
	all := k.ofMode(&flag, &exclusive)
	whole := true
	for _, o := range all {
		o.renewed = o.renewed && !anew
		whole = whole && !o.renewed
	}
	errs := k.renewAll(ctx, all)
	for _, err := range errs {
		var lost *LostError
		if errors.As(err, &lost) {
			return refresh.Renewal{}, refresh.Stop(lost)
		}
	}
	renewed := refresh.Renewal{Sent: flag.sent}
	if k.t.mode == Exclusive {
		renewed.Sent = min(flag.sent, exclusive.sent)
	}
	err := join(errs...)
	renewed.Commit = func() {
		k.commit(flag, exclusive)
		if whole && err == nil {
			k.saw(began)
		}
	}
	return renewed, err
}

// renewAll renews those objects that weren't renewed yet.
func (k *Lock) renewAll(ctx context.Context, all []*object) []error {
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

// objects are our objects as we know them.
func (k *Lock) objects() (flag, exclusive object) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.t.flag, k.t.exclusive
}

// ofMode are those objects that a lock of this mode has.
func (k *Lock) ofMode(flag, exclusive *object) []*object {
	if k.t.mode == Exclusive {
		return []*object{flag, exclusive}
	}
	return []*object{flag}
}

// commit keeps what an attempt has learnt of them.
func (k *Lock) commit(flag, exclusive object) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.t.flag.etag, k.t.flag.sent, k.t.flag.renewed = flag.etag, flag.sent, flag.renewed
	k.t.exclusive.etag, k.t.exclusive.sent, k.t.exclusive.renewed = exclusive.etag, exclusive.sent, exclusive.renewed
}

// renew replaces one of our objects, and keeps in o what it has learnt of it
// even if it fails. unique says that the key is written by no other client, so
// that If-Match may be tried out on it.
func (k *Lock) renew(ctx context.Context, o *object, unique bool) error {
	if k.l.conditions.matchKept && o.etag != "" {
		return k.replace(ctx, o)
	}
	return k.lookAndPut(ctx, o, unique)
}

// replace renews with If-Match where the backend itself keeps it: that proves
// that the object was there.
func (k *Lock) replace(ctx context.Context, o *object) error {
	err := k.put(ctx, o, store.PutOptions{IfMatch: o.etag})
	if errors.Is(err, store.ErrPrecondition) {
		// It isn't as we know it. An earlier refresh of ours that got no answer
		// may have been applied: then it carries our id, and we go on from it.
		if err := k.ours(ctx, o); err != nil {
			return err
		}
		err = k.put(ctx, o, store.PutOptions{IfMatch: o.etag})
		if errors.Is(err, store.ErrPrecondition) {
			return fmt.Errorf("%s changes between two requests: %w", o.key, err)
		}
	}
	return err
}

// lookAndPut renews where the server only claims If-Match, or has none: it looks
// whether the object is there, and puts. If-Match comes on top where it was
// proven. It never takes the place of the look: some servers write an object that
// was deleted, whatever the condition says (minio/minio#21526), and each refresh
// would put a broken lock back.
func (k *Lock) lookAndPut(ctx context.Context, o *object, unique bool) error {
	began := k.l.opts.Clock.Elapsed()
	if err := k.confirm(ctx, o); err != nil {
		return err
	}
	match := &k.l.conditions.match
	proves := unique && match.open() && o.etag != "" && k.refuses(ctx, o)
	// A process that was stopped since it looked would put back what was broken
	// meanwhile.
	if took := k.l.opts.Clock.Elapsed() - began; took > max(k.l.schedule.Failure, 3*k.t.trips.slowest()+time.Second) {
		return fmt.Errorf("%s: looking at it took %v", o.key, took.Round(time.Second))
	}
	opts := store.PutOptions{Replaces: o.etag}
	if (match.holds() || proves) && o.etag != "" {
		opts = store.PutOptions{IfMatch: o.etag}
	}
	err := k.put(ctx, o, opts)
	if proves {
		match.learnTaken(err)
	}
	if errors.Is(err, store.ErrPrecondition) {
		// It was deleted in between, or a put of ours that got no answer came late.
		if err := k.confirm(ctx, o); err != nil {
			return err
		}
		return fmt.Errorf("%s changes between two requests: %w", o.key, err)
	}
	return err
}

// put sends the next version of an object.
func (k *Lock) put(ctx context.Context, o *object, opts store.PutOptions) error {
	b := k.t.body
	b.Seq, b.State = k.seq.Add(1), stateHeld
	sent := k.l.opts.Clock.Elapsed()
	k.l.stamp(&b, *k.now.Load(), sent)
	put, err := k.write(ctx, o.key, b.encode(), opts)
	if err == nil {
		o.etag, o.sent = put.ETag, sent
	}
	return err
}

// confirm returns nil if the object is there and ours.
func (k *Lock) confirm(ctx context.Context, o *object) error {
	seen, err := k.find(ctx, o.key)
	if err != nil {
		return err
	}
	return k.confirmSeen(ctx, o, seen)
}

// find is what a listing shows of one of our objects: nothing if it isn't there.
func (k *Lock) find(ctx context.Context, key string) (*store.Object, error) {
	return ask(ctx, k, "list "+key, func(ctx context.Context) (*store.Object, error) { return k.l.listed(ctx, key) })
}

// confirmSeen returns nil if what a listing has shown of an object is ours.
func (k *Lock) confirmSeen(ctx context.Context, o *object, seen *store.Object) error {
	switch {
	case seen == nil:
		return k.broken(o.key, "it was deleted, by break-lock or by hand")
	case seen.Size == 0 || seen.ETag == "" || seen.ETag != o.etag:
		return k.ours(ctx, o)
	default:
		return nil
	}
}

// ours reads an object that isn't as we know it. If it carries our id, a put of
// ours got no answer and was applied; else the lock was broken.
func (k *Lock) ours(ctx context.Context, o *object) error {
	c, err := ask(ctx, k, "get "+o.key, func(ctx context.Context) (content, error) {
		raw, object, err := k.l.store.Get(ctx, o.key, maxBody)
		return content{raw, object}, err
	})
	switch {
	case errors.Is(err, store.ErrNotFound):
		return k.broken(o.key, "it was deleted, by break-lock or by hand")
	case errors.Is(err, store.ErrTooLarge):
		return k.broken(o.key, "it was replaced by something that is no lock")
	case err != nil:
		return err
	}
	l, err := decode(c.raw)
	switch {
	case errors.Is(err, errReleased):
		return k.broken(o.key, "it was emptied, by break-lock or by hand")
	case err != nil:
		return k.broken(o.key, "it was replaced by something that is no lock of ours")
	case !k.t.ids[l.ID]:
		return k.broken(o.key, fmt.Sprintf("it was replaced by %s, operation %s", orUnknown(l.Holder), orUnknown(l.Operation)))
	}
	o.etag, o.sent = c.object.ETag, time.Duration(l.RefreshedBoot)
	return nil
}

func (k *Lock) broken(key, reason string) *LostError {
	return &LostError{Mode: k.t.mode, Key: key, Reason: reason, Definite: true}
}
