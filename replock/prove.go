package replock

import (
	"context"
	"errors"
	"sync"

	"github.com/repolock/repolock/store"
)

// wrongETag is an ETag that no body of ours has.
const wrongETag = "00000000000000000000000000000000"

// maxProofs is the number of undecided proofs of a condition after which it isn't relied on.
const maxProofs = 3

// refuses reports whether the server was seen to refuse what If-Match must make it refuse: a put of
// our own flag with a wrong ETag, and a put of a missing key with any ETag. The caller must have
// just seen the flag. Otherwise a server that ignores the condition could put back a deleted flag.
// A proof that fails costs only time.
func (r *renewer) refuses(ctx context.Context, flag *object) bool {
	seen := &r.l.conditions.refused
	ctx, cancel := context.WithTimeout(ctx, max(r.timeout()/3, 2*r.t.trips.slowest()))
	defer cancel()
	var wrong, missing error
	var wg sync.WaitGroup
	if !seen.missing.Load() {
		wg.Go(func() { missing = r.putMissing(ctx) })
	}
	if !seen.wrong.Load() {
		wrong = r.put(ctx, flag, store.PutOptions{IfMatch: wrongETag})
		if errors.Is(wrong, store.ErrPrecondition) {
			seen.wrong.Store(true)
		}
	}
	wg.Wait()
	if errors.Is(missing, store.ErrPrecondition) {
		seen.missing.Store(true)
	}
	taken := wrong == nil && !seen.wrong.Load() || missing == nil && !seen.missing.Load()
	all := seen.wrong.Load() && seen.missing.Load()
	if taken || !all && r.l.conditions.proofs.Add(1) >= maxProofs {
		r.l.conditions.match.learn(false)
	}
	return all
}

// putMissing puts an empty flag, which counts as released, under a missing key with an If-Match. A
// server that stores it ignores the condition. Then putMissing deletes it, or, if the time for the
// proof is over, the release does.
func (r *renewer) putMissing(ctx context.Context) error {
	id, err := r.l.newID()
	if err != nil {
		return err
	}
	key := r.l.keys.flag(Shared, r.l.opts.Clock.Now(), id)
	_, err = r.write(ctx, key, nil, store.PutOptions{IfMatch: wrongETag})
	if errors.Is(err, store.ErrPrecondition) || errors.Is(err, store.ErrConditionUnsupported) || errors.Is(err, ErrReleased) {
		return err
	}
	if _, derr := ask(ctx, r, "delete "+key, r.l.delete(key)); derr != nil {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.probe = append(r.probe, &entry{Object: store.Object{Key: key}})
	}
	return err
}

func (r *renewer) probes() []*entry {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.probe
}
