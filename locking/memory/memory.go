// Package memory keeps locks in the memory of one process. It is for tests, for a program that runs only once at a
// time, and as the fallback of a program without a configured backend. Other processes don't see the locks. The locks
// end with the process.
package memory

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/repolock/repolock/internal/clock"
	"github.com/repolock/repolock/locking"
)

// Backend is a locking.Backend, Inspector and Breaker. All goroutines that share locks must share
// one Backend. Its methods can be called concurrently.
type Backend struct {
	clock clock.Clock

	mu    sync.Mutex
	locks map[string]lock
	last  uint64 // number of the newest lock
}

type lock struct {
	handle            locking.Handle
	number            uint64
	acquired, renewed time.Time
	deadline          time.Duration // by the clock's Elapsed
}

var (
	_ locking.Backend   = (*Backend)(nil)
	_ locking.Inspector = (*Backend)(nil)
	_ locking.Breaker   = (*Backend)(nil)
)

// New returns a backend without locks. If c is nil, it uses the machine's clock.
func New(c locking.Clock) *Backend {
	if c == nil {
		c = clock.System{}
	}
	return &Backend{clock: c, locks: make(map[string]lock)}
}

// TryLock acquires the lock of any key except "". The ttl must be positive.
func (b *Backend) TryLock(ctx context.Context, key string, ttl time.Duration) (locking.Handle, bool, error) {
	if err := check(ctx, key); err != nil {
		return locking.Handle{}, false, err
	}
	if ttl <= 0 {
		return locking.Handle{}, false, fmt.Errorf("lock %q: the ttl must be positive, not %v", key, ttl)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.sweep()
	if _, held := b.locks[key]; held {
		return locking.Handle{}, false, nil
	}
	h, now := locking.NewHandle(key, ttl), b.clock.Now()
	b.last++
	b.locks[key] = lock{h, b.last, now, now, b.clock.Elapsed() + ttl}
	return h, true, nil
}

// Renew makes the lock last for another ttl from now.
func (b *Backend) Renew(ctx context.Context, h locking.Handle) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	l, err := b.find(h)
	if err != nil {
		return err
	}
	l.renewed, l.deadline = b.clock.Now(), b.clock.Elapsed()+h.TTL()
	b.locks[h.Key()] = l
	return nil
}

// Release frees the lock, even if the context has ended.
func (b *Backend) Release(_ context.Context, h locking.Handle) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if _, err := b.find(h); err != nil {
		return err
	}
	delete(b.locks, h.Key())
	return nil
}

// Cleanup removes expired locks. Every other method does the same.
func (b *Backend) Cleanup(ctx context.Context) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.sweep()
	return ctx.Err()
}

// Inspect returns the times of a lock, by the backend's clock. It doesn't know the holder's name.
func (b *Backend) Inspect(ctx context.Context, key string) (*locking.Info, error) {
	if err := check(ctx, key); err != nil {
		return nil, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.sweep()
	l, held := b.locks[key]
	if !held {
		return nil, nil
	}
	return &locking.Info{Key: key, Acquired: l.acquired, Renewed: l.renewed, TTL: l.handle.TTL(), Revision: l.revision()}, nil
}

// Break removes the lock that Inspect has described. If stale is set, it removes nothing, because no
// lock in memory outlives its ttl.
func (b *Backend) Break(ctx context.Context, seen *locking.Info, stale bool) (bool, error) {
	if err := check(ctx, seen.Key); err != nil {
		return false, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.sweep()
	if l, held := b.locks[seen.Key]; !held || stale || l.revision() != seen.Revision {
		return false, nil
	}
	delete(b.locks, seen.Key)
	return true, nil
}

// revision returns the lock's number in the order of acquisition.
func (l lock) revision() string { return strconv.FormatUint(l.number, 10) }

// find returns the lock of a handle, or ErrLost.
func (b *Backend) find(h locking.Handle) (lock, error) {
	b.sweep()
	l, held := b.locks[h.Key()]
	if !held || l.handle.Token() != h.Token() {
		return lock{}, fmt.Errorf("lock %q: %w", h.Key(), locking.ErrLost)
	}
	return l, nil
}

// sweep removes the locks whose ttl is over.
func (b *Backend) sweep() {
	now := b.clock.Elapsed()
	for key, l := range b.locks {
		if now >= l.deadline {
			delete(b.locks, key)
		}
	}
}

func check(ctx context.Context, key string) error {
	if key == "" {
		return fmt.Errorf("%w: it is empty", locking.ErrKey)
	}
	return ctx.Err()
}
