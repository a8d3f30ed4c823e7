package replock

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/repolock/repolock/internal/refresh"
	"github.com/repolock/repolock/store"
)

// refresh is one attempt to renew the lease of a held lock: PROTOCOL.md, Hold.
// It proves that each of our objects was still there until it was replaced by
// its next version; if one wasn't, the lock was broken, and is lost for good.
//
// It changes nothing of the lock by itself: see refresh.Renewal.
func (k *Lock) refresh(ctx context.Context) (refresh.Renewal, error) {
	sent := k.l.opts.Clock.Elapsed()
	b := k.t.body
	b.Seq, b.State = k.seq.Add(1), stateHeld
	b.stamp(k.l.opts.Clock.Now(), sent, k.l.opts.TTL)
	v := version{b.encode(), sent}

	flag, exclusive := k.objects()
	var flagErr, exclusiveErr error
	var wg sync.WaitGroup
	if k.t.mode == Exclusive {
		wg.Go(func() { exclusiveErr = k.renew(ctx, &exclusive, v, false) })
	}
	flagErr = k.renew(ctx, &flag, v, true)
	wg.Wait()

	for _, err := range []error{flagErr, exclusiveErr} {
		var lost *LostError
		if errors.As(err, &lost) {
			return refresh.Renewal{}, refresh.Stop(lost)
		}
	}
	renewed := refresh.Renewal{Sent: flag.sent, Commit: func() { k.commit(flag, exclusive) }}
	if k.t.mode == Exclusive {
		renewed.Sent = min(flag.sent, exclusive.sent)
	}
	if err := join(flagErr, exclusiveErr); err != nil && renewed.Sent <= k.sent() {
		return refresh.Renewal{}, err
	}
	// Perhaps this attempt wasn't answered, but showed that an earlier one of
	// ours was applied, which got no answer either: a renewal since then.
	return renewed, nil
}

// objects are our objects as we know them.
func (k *Lock) objects() (flag, exclusive object) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.t.flag, k.t.exclusive
}

// commit keeps what an attempt has learnt of them.
func (k *Lock) commit(flag, exclusive object) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.t.flag.etag, k.t.flag.sent = flag.etag, flag.sent
	k.t.exclusive.etag, k.t.exclusive.sent = exclusive.etag, exclusive.sent
}

// version is the next body of our objects, and when it is sent.
type version struct {
	body []byte
	sent time.Duration
}

// renew replaces one of our objects, and keeps in o what it has learnt of it
// even if it fails. unique says that the key is written by nobody else, so that
// If-Match may be tried out on it.
func (k *Lock) renew(ctx context.Context, o *object, v version, unique bool) error {
	if unique && k.l.conditions.match.open() {
		return k.prove(ctx, o, v)
	}
	if k.l.conditions.match.holds() && o.etag != "" {
		return k.replace(ctx, o, v)
	}
	return k.confirmAndPut(ctx, o, v)
}

// replace renews with If-Match: the store itself proves that the object was
// there.
func (k *Lock) replace(ctx context.Context, o *object, v version) error {
	err := k.put(ctx, o, v, store.PutOptions{IfMatch: o.etag})
	if errors.Is(err, store.ErrPrecondition) {
		// It isn't as we know it. An earlier refresh of ours that got no answer
		// may have been applied: then it carries our id, and we go on from it.
		if err := k.ours(ctx, o); err != nil {
			return err
		}
		err = k.put(ctx, o, v, store.PutOptions{IfMatch: o.etag})
		if errors.Is(err, store.ErrPrecondition) {
			return fmt.Errorf("%s changes between two requests: %w", o.key, err)
		}
	}
	return err
}

// confirmAndPut renews where If-Match can't be relied on: it looks whether the
// object is there, and puts.
func (k *Lock) confirmAndPut(ctx context.Context, o *object, v version) error {
	if err := k.confirm(ctx, o); err != nil {
		return err
	}
	err := k.put(ctx, o, v, store.PutOptions{Replaces: o.etag})
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
func (k *Lock) put(ctx context.Context, o *object, v version, opts store.PutOptions) error {
	put, err := k.l.store.Put(ctx, o.key, v.body, opts)
	if err == nil {
		o.etag, o.sent = put.ETag, v.sent
	}
	return err
}

// confirm returns nil if the object is there and ours, and was a moment ago: who was
// stopped since then would put back what was broken meanwhile.
func (k *Lock) confirm(ctx context.Context, o *object) error {
	began := k.l.opts.Clock.Elapsed()
	seen, err := k.l.listed(ctx, o.key)
	switch {
	case err != nil:
		return err
	case seen == nil:
		return k.broken(o.key, "it was deleted, by break-lock or by hand")
	case seen.Size == 0 || seen.ETag == "" || seen.ETag != o.etag:
		err = k.ours(ctx, o)
	}
	if took := k.l.opts.Clock.Elapsed() - began; err == nil && took > k.l.timeout() {
		err = fmt.Errorf("%s: looking at it took %v", o.key, took.Round(time.Second))
	}
	return err
}

// ours reads an object that isn't as we know it. If it carries our id, a put of
// ours got no answer and was applied; else the lock was broken.
func (k *Lock) ours(ctx context.Context, o *object) error {
	raw, seen, err := k.l.store.Get(ctx, o.key, maxBody)
	switch {
	case errors.Is(err, store.ErrNotFound):
		return k.broken(o.key, "it was deleted, by break-lock or by hand")
	case errors.Is(err, store.ErrTooLarge):
		return k.broken(o.key, "it was replaced by something that is no lock")
	case err != nil:
		return err
	}
	l, err := decode(raw)
	switch {
	case errors.Is(err, errReleased):
		return k.broken(o.key, "it was emptied, by break-lock or by hand")
	case err != nil:
		return k.broken(o.key, "it was replaced by something that is no lock of ours")
	case !k.t.ids[l.ID]:
		return k.broken(o.key, fmt.Sprintf("it was replaced by %s, operation %s", orUnknown(l.Holder), orUnknown(l.Operation)))
	}
	o.etag, o.sent = seen.ETag, time.Duration(l.RefreshedBoot)
	return nil
}

func (k *Lock) broken(key, reason string) *LostError {
	return &LostError{Mode: k.t.mode, Key: key, Reason: reason, Definite: true}
}

// wrongETag is one that no body of ours has.
const wrongETag = "00000000000000000000000000000000"

// prove renews, and finds out on the way whether the store heeds If-Match: on our
// own flag, which nobody else writes, it must refuse a wrong ETag and then take
// the right one. It comes after the look, so that a store that ignores the
// condition is not made to put back a flag that was deleted.
func (k *Lock) prove(ctx context.Context, o *object, v version) error {
	if err := k.confirm(ctx, o); err != nil {
		return err
	}
	taken := false
	err := k.put(ctx, o, v, store.PutOptions{IfMatch: wrongETag})
	if errors.Is(err, store.ErrPrecondition) && o.etag != "" {
		err = k.put(ctx, o, v, store.PutOptions{IfMatch: o.etag})
		taken = err == nil
	}
	if errors.Is(err, store.ErrPrecondition) || errors.Is(err, store.ErrConditionUnsupported) {
		err = k.confirmAndPut(ctx, o, v)
	}
	if err == nil {
		k.l.conditions.match.learn(taken)
	}
	return err
}
