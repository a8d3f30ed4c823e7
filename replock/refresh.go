package replock

import (
	"context"
	"errors"
	"sync"

	"github.com/repolock/repolock/internal/clock"
	"github.com/repolock/repolock/internal/fault"
	"github.com/repolock/repolock/internal/refresh"
)

// refresh is one attempt to renew the lease of a held lock: docs/protocol.md, Refresh. If one of
// our objects was gone before its next version replaced it, the lock was broken, and is lost for
// good. An attempt that failed can have renewed one of the two objects. The next attempt renews
// only the other one, unless it begins anew. refresh itself doesn't change the lock: see
// refresh.Renewal.
func (k *term) refresh(ctx context.Context, anew bool) (refresh.Renewal, error) {
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
		if lost, ok := errors.AsType[*LostError](err); ok {
			return refresh.Renewal{}, refresh.Stop(lost)
		}
	}
	renewed := refresh.Renewal{Sent: flag.sent}
	if k.t.mode == Exclusive {
		renewed.Sent = min(flag.sent, exclusive.sent)
	}
	err := fault.Join(errs...)
	renewed.Commit = func() {
		k.commit(flag, exclusive)
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
func (k *term) objects() (flag, exclusive object) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.t.flag, k.t.exclusive
}

// ofMode returns the objects that a lock of this mode has.
func (k *term) ofMode(flag, exclusive *object) []*object {
	if k.t.mode == Exclusive {
		return []*object{flag, exclusive}
	}
	return []*object{flag}
}

// commit keeps the results of an attempt.
func (k *term) commit(flag, exclusive object) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.t.flag.etag, k.t.flag.sent, k.t.flag.renewed = flag.etag, flag.sent, flag.renewed
	k.t.exclusive.etag, k.t.exclusive.sent, k.t.exclusive.renewed = exclusive.etag, exclusive.sent, exclusive.renewed
}
