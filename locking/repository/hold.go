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

// hold is the lock of a handle. The Backend keeps it until the handle is released or lapses. It keeps a
// lost lock for Resume.
type hold struct {
	b      *Backend
	handle locking.Handle
	lock   *replock.Lock

	mu    sync.Mutex
	until time.Duration // when the handle expires, on the clock's Elapsed
	over  bool          // the handle was released or has lapsed
	timed bool          // expire runs
	again int           // calls of Resume under way; meanwhile the handle doesn't lapse
	ended chan struct{} // closed when over is set
}

// keep starts the ttl of a new handle.
func (b *Backend) keep(handle locking.Handle, lock *replock.Lock) {
	h := &hold{b: b, handle: handle, lock: lock, ended: make(chan struct{})}
	b.mu.Lock()
	b.holds[handle] = h
	b.mu.Unlock()
	h.mu.Lock()
	defer h.mu.Unlock()
	h.renewed()
}

// renewed starts another ttl. The caller holds h.mu.
func (h *hold) renewed() {
	h.until = h.b.clock.Elapsed() + h.handle.TTL()
	if !h.timed {
		h.timed = true
		go h.expire()
	}
}

// expire waits until the ttl of the handle is over, and releases the lock.
func (h *hold) expire() {
	w := clock.NewWatch(h.b.clock)
	defer w.Stop()
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
		case <-w.After(left):
		}
	}
}

// lapse releases the lock of an expired handle. It leaves a lock that is lost already in the store, because Resume
// needs its remains to find out whether another holder has acquired the lock since. The caller holds h.mu.
func (h *hold) lapse() {
	if h.over || h.again > 0 || h.lock.Left() == 0 {
		return
	}
	h.finish()
	lock := h.lock
	go func() { _ = lock.Release(context.Background()) }() // it logs its error
}

// finish removes the handle. The caller holds h.mu.
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

// lasts reports whether the handle is valid. An expired handle lapses.
func (h *hold) lasts() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.b.clock.Elapsed() >= h.until {
		h.lapse()
		return false
	}
	return !h.over
}

// Renew refreshes the lock, and makes the handle last for another ttl. That costs two puts in one round trip. On a
// store without If-Match it costs two round trips, and a list for each put.
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

// Watch returns a channel that is closed when a look or a refresh notices the loss of the lock, and when
// the lock is released. After Resume, the lock has a new channel.
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

// checkTime bounds Release's check for a loss.
const checkTime = time.Second

// Release frees the lock, even if ctx has ended. It returns ErrLost if the lock was broken before. If
// the store doesn't answer, Release returns within half a minute with an error that says when the lock
// expires, and the handle is no longer valid.
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
		_ = lock.Check(looking) // lock.Lost returns a loss; other errors don't matter
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

// Resume renews a held lock. It acquires a lost lock again if the loss came from an outage of the store or
// from a suspend, and no other client has acquired the lock since: see replock.Lock.Resume. It tries until
// that is certain, or until ctx ends.
//
// Resume returns ErrLost for a lock that was released, or whose handle expired while the lock was held.
func (b *Backend) Resume(ctx context.Context, handle locking.Handle) error {
	h, err := b.find(handle)
	if err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("lock %q wasn't resumed: %w", handle.Key(), err)
	}
	lock := h.lock
	held := lock.Context() // read now, because another Resume can replace it
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
	if h.over { // a concurrent Release has the lock
		return lost(handle, nil)
	}
	h.renewed()
	return nil
}
