package replock

import (
	"context"
	"fmt"
)

// Release ends the lock: its context ends, and its objects are deleted, the
// caller's context being over or not. A second call waits for the first and
// returns the same. An error means that an object is left, which expires with
// the ttl; of a lock that was lost, only its flag is deleted.
func (k *Lock) Release(ctx context.Context) error {
	if !k.releasing.CompareAndSwap(false, true) {
		<-k.released
		return k.releaseErr
	}
	defer close(k.released)
	k.cancel(ErrReleased)
	k.stop(ErrReleased)
	<-k.done // no refresh is under way any more that could undo what follows

	k.t.deadline = k.Deadline()
	if k.resumed.Load() {
		return nil // the lock that it was resumed as owns what is left
	}
	err := k.release(context.WithoutCancel(ctx))
	if err != nil {
		k.releaseErr = fmt.Errorf("releasing the %s lock (it expires within %v): %w", k.t.mode, k.l.opts.TTL, err)
		k.tell(EventReleaseFailed, err)
		return k.releaseErr
	}
	k.tell(EventReleased, nil)
	return nil
}

// release deletes our objects: PROTOCOL.md, Release. Of a lost lock only the
// flag, which is nobody else's; lock.exclusive may be.
func (k *Lock) release(ctx context.Context) error {
	if k.lost.Load() != nil {
		return k.l.takeDownFlag(ctx, k.t)
	}
	return k.l.takeDown(ctx, k.t)
}
