package repository

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/repolock/repolock/internal/clock"
	"github.com/repolock/repolock/locking"
	"github.com/repolock/repolock/replock"
)

// hold is the lock of one handle. It is kept until it is released, or expires while it is held;
// a lock that was lost is kept for Resume.
type hold struct {
	b      *Backend
	handle locking.Handle
	lock   *replock.Lock

	mu    sync.Mutex
	until time.Duration // when the handle expires, on the clock's Elapsed
	over  bool          // released, or expired while the lock was held
	timed bool          // expire runs
	again int           // calls of Resume under way: they decide whether the handle lapses
	ended chan struct{} // closed when it is over
}

// keep begins the ttl of a handle.
func (b *Backend) keep(handle locking.Handle, lock *replock.Lock) {
	h := &hold{b: b, handle: handle, lock: lock, ended: make(chan struct{})}
	b.mu.Lock()
	b.holds[handle] = h
	b.mu.Unlock()
	h.mu.Lock()
	defer h.mu.Unlock()
	h.renewed()
}

// renewed begins another ttl. The caller has h.mu.
func (h *hold) renewed() {
	h.until = h.b.clock.Elapsed() + h.handle.TTL()
	if !h.timed {
		h.timed = true
		go h.expire()
	}
}

// expire releases the lock when the ttl of the handle is over, however well the lock is.
func (h *hold) expire() {
	for {
		h.mu.Lock()
		left := h.until - h.b.clock.Elapsed()
		if left <= 0 {
			h.timed = false
			h.lapse()
			h.mu.Unlock()
			return
		}
		h.mu.Unlock()
		select {
		case <-h.ended:
			return
		case <-h.b.clock.After(min(left, clock.Tick)):
		}
	}
}

// lapse gives up the lock of an expired handle. If the lock is lost already, it leaves the rest
// of it in the store: by that Resume finds out whether another holder has passed. The caller has
// h.mu.
func (h *hold) lapse() {
	if h.over || h.again > 0 || h.lock.Left() == 0 {
		return
	}
	h.finish()
	lock := h.lock
	go func() { _ = lock.Release(context.Background()) }() // the logger has its error
}

// finish forgets the handle. The caller has h.mu.
func (h *hold) finish() {
	h.over = true
	close(h.ended)
	h.b.mu.Lock()
	defer h.b.mu.Unlock()
	delete(h.b.holds, h.handle)
}

// find returns the hold of a handle, or ErrLost.
func (b *Backend) find(handle locking.Handle) (*hold, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if h, ok := b.holds[handle]; ok {
		return h, nil
	}
	return nil, lost(handle, nil)
}

// lasts reports whether the ttl of the handle does. An expired handle is given up.
func (h *hold) lasts() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.b.clock.Elapsed() >= h.until {
		h.lapse()
		return false
	}
	return !h.over
}

// Renew refreshes the lock at once, and makes the handle last for another ttl. It costs what a
// refresh of replock costs: two puts in one round trip, or two round trips with a list each.
func (b *Backend) Renew(ctx context.Context, handle locking.Handle) error {
	h, err := b.find(handle)
	if err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("lock %q wasn't renewed: %w", handle.Key(), err)
	}
	if !h.lasts() {
		return lost(handle, nil)
	}
	silent := b.store.Listen()
	if err := h.lock.Renew(ctx); err != nil {
		return fmt.Errorf("lock %q wasn't renewed: %w", handle.Key(), classed(err, silent()))
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.over {
		return lost(handle, nil)
	}
	h.renewed()
	return nil
}

// Watch returns a channel that is closed when the loss of the lock is noticed, by a look or a
// refresh, and when the lock is released. Renew returns ErrLost then. The channel of a lock that
// was resumed is another one.
func (b *Backend) Watch(handle locking.Handle) <-chan struct{} {
	h, err := b.find(handle)
	if err != nil {
		none := make(chan struct{})
		close(none)
		return none
	}
	done := h.lock.Context().Done()
	h.lasts()
	return done
}

// checkTime bounds the look of a release.
const checkTime = time.Second

// Release frees the lock, even if ctx has ended. It looks first whether the lock was broken: then
// it returns ErrLost. It is over within half a minute if the store doesn't answer; then its error
// says that the lock expires, and the handle is no lock any more.
func (b *Backend) Release(ctx context.Context, handle locking.Handle) error {
	h, err := b.find(handle)
	if err != nil {
		return err
	}
	h.mu.Lock()
	if h.over {
		h.mu.Unlock()
		return lost(handle, nil)
	}
	expired := b.clock.Elapsed() >= h.until
	h.finish()
	lock := h.lock
	h.mu.Unlock()

	ctx = context.WithoutCancel(ctx)
	if !expired {
		looking, cancel := context.WithTimeout(ctx, checkTime)
		_ = lock.Check(looking) // Lost has a loss, and no other error keeps the lock
		cancel()
	}
	why := lock.Lost()
	silent := b.store.Listen()
	err = lock.Release(ctx)
	switch {
	case why != nil:
		return lost(handle, why)
	case expired:
		return lost(handle, nil)
	case err != nil:
		return fmt.Errorf("lock %q: %w", handle.Key(), classed(err, silent()))
	}
	return nil
}

// Resume renews a lock that is held. A lock that was lost for want of a refresh, by an outage of
// the store or a suspend, it takes again if no other client has passed it since: see
// replock.Lock.Resume. It tries until that is decided, or ctx ends.
//
// A lock that was released can't be resumed, nor one whose handle has expired while it was held.
func (b *Backend) Resume(ctx context.Context, handle locking.Handle) error {
	h, err := b.find(handle)
	if err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("lock %q wasn't resumed: %w", handle.Key(), err)
	}
	lock := h.lock
	held := lock.Context() // of before any other Resume
	lasts := h.lasts()
	if lock.Left() > 0 {
		if !lasts {
			return lost(handle, nil)
		}
		return b.Renew(ctx, handle)
	}
	select {
	case <-held.Done(): // the loss is known
	case <-ctx.Done():
		return fmt.Errorf("lock %q wasn't resumed: %w", handle.Key(), ctx.Err())
	}
	h.mu.Lock()
	h.again++
	h.mu.Unlock()
	silent := b.store.Listen()
	err = lock.Resume(ctx)
	h.mu.Lock()
	defer h.mu.Unlock()
	h.again--
	if err != nil {
		return fmt.Errorf("lock %q wasn't resumed: %w", handle.Key(), classed(err, silent()))
	}
	if h.over { // since Resume was over: the release has it
		return lost(handle, nil)
	}
	h.renewed()
	return nil
}
