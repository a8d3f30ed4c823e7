package replock

import (
	"context"
	"errors"
	"sync"

	"github.com/repolock/repolock/store"
)

// wrongETag is one that no body of ours has.
const wrongETag = "00000000000000000000000000000000"

// maxProofs is how often an answer may leave it open whether a condition is kept.
const maxProofs = 3

// refuses reports whether the server was seen to refuse what If-Match must make
// it refuse: a wrong ETag of our own flag, which no other client writes, and any
// ETag of a key that isn't there. The look comes before it, so that a server that
// ignores the condition is not made to put back a flag that was deleted. A proof
// that fails costs no more than its time: the refresh goes on without it.
func (k *Lock) refuses(ctx context.Context, flag *object) bool {
	r := &k.l.conditions.refusals
	ctx, cancel := context.WithTimeout(ctx, max(k.timeout()/3, 2*k.t.trips.slowest()))
	defer cancel()
	var wrong, missing error
	var wg sync.WaitGroup
	if !r.missing.Load() {
		wg.Go(func() { missing = k.putMissing(ctx) })
	}
	if !r.wrong.Load() {
		wrong = k.put(ctx, flag, store.PutOptions{IfMatch: wrongETag})
		if errors.Is(wrong, store.ErrPrecondition) {
			r.wrong.Store(true)
		}
	}
	wg.Wait()
	if errors.Is(missing, store.ErrPrecondition) {
		r.missing.Store(true)
	}
	taken := wrong == nil && !r.wrong.Load() || missing == nil && !r.missing.Load()
	if taken || !r.all() && r.tries.Add(1) >= maxProofs {
		k.l.conditions.match.learn(false)
	}
	return r.all()
}

// putMissing puts an empty flag, which says "released", under a key that isn't
// there, with an If-Match that it can't meet, and removes what a server has made
// of it: now, or if the time for the proof is over, when the lock is released.
func (k *Lock) putMissing(ctx context.Context) error {
	id, err := k.l.newID()
	if err != nil {
		return err
	}
	key := k.l.keys.flag(Shared, k.l.opts.Clock.Now(), id)
	_, err = k.write(ctx, key, nil, store.PutOptions{IfMatch: wrongETag})
	if errors.Is(err, store.ErrPrecondition) || errors.Is(err, store.ErrConditionUnsupported) || errors.Is(err, ErrReleased) {
		return err
	}
	if _, derr := ask(ctx, k, "delete "+key, func(ctx context.Context) (nothing, error) {
		return nothing{}, k.l.store.Delete(ctx, key)
	}); derr != nil {
		k.mu.Lock()
		defer k.mu.Unlock()
		k.probe = append(k.probe, &entry{Object: store.Object{Key: key}})
	}
	return err
}

func (k *Lock) probes() []*entry {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.probe
}
