package lockingtest_test

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/repolock/repolock/locking"
)

type (
	givesUpRelease struct{ *table }
	shows          struct{ *table }
	breaksAny      struct{ *table }
	// patient leaves expired locks alone.
	patient    struct{ *table }
	stealsLive struct{ *table }
	// waits lets the table's time pass with that of the bubble.
	waits struct{ *table }
)

// Release takes the end of its context for the loss of the lock.
func (b *givesUpRelease) Release(ctx context.Context, h locking.Handle) error {
	if ctx.Err() != nil {
		return locking.ErrLost
	}
	return b.table.Release(ctx, h)
}

// forgets forgets a handle before its lock is released.
type forgets struct {
	*table
	forgotten sync.Map
}

func (b *forgets) Release(ctx context.Context, h locking.Handle) error {
	if _, gone := b.forgotten.LoadOrStore(h, true); gone {
		return locking.ErrLost
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	return b.table.Release(ctx, h)
}

// TryLock acquires only what was released.
func (b *patient) TryLock(ctx context.Context, key string, ttl time.Duration) (locking.Handle, bool, error) {
	b.mu.Lock()
	_, there := b.locks[key]
	b.mu.Unlock()
	if there {
		return locking.Handle{}, false, ctx.Err()
	}
	return b.table.TryLock(ctx, key, ttl)
}

// TryLock takes any lock.
func (b *stealsLive) TryLock(ctx context.Context, key string, ttl time.Duration) (locking.Handle, bool, error) {
	b.remove(key)
	return b.table.TryLock(ctx, key, ttl)
}

func (b *waits) TryLock(ctx context.Context, key string, ttl time.Duration) (locking.Handle, bool, error) {
	time.Sleep(time.Millisecond)
	return b.table.TryLock(ctx, key, ttl)
}

// here and there count the handles of two processes.
var here, there = new(atomic.Int64), new(atomic.Int64)

// counts knows its locks by a number, which is that of its process.
type counts struct {
	*table
	from    *atomic.Int64
	numbers sync.Map // of handles
}

// holders are the numbers of the holders, in the storage.
var holders sync.Map

func (b *counts) TryLock(ctx context.Context, key string, ttl time.Duration) (locking.Handle, bool, error) {
	h, ok, err := b.table.TryLock(ctx, key, ttl)
	if ok {
		n := b.from.Add(1)
		b.numbers.Store(h, n)
		holders.Store(h, n)
	}
	return h, ok, err
}

// Release deletes the lock that has the handle's number.
func (b *counts) Release(ctx context.Context, h locking.Handle) error {
	b.mu.Lock()
	e := b.locks[h.Key()]
	b.mu.Unlock()
	mine, _ := b.numbers.Load(h)
	if stored, ok := holders.Load(e.Handle); ok && stored == mine {
		return b.table.Release(ctx, e.Handle)
	}
	return locking.ErrLost
}

// Inspect shows expired and released locks too.
func (b *shows) Inspect(context.Context, string) (*locking.Info, error) {
	return &locking.Info{Key: "a", Acquired: time.Unix(1, 0), Revision: "1"}, nil
}

// revises has revisions of its own. n counts the calls of Inspect.
type revises struct {
	*table
	revision func(h locking.Handle, n int) string
}

var inspected atomic.Int64

func (b *revises) Inspect(ctx context.Context, key string) (*locking.Info, error) {
	info, err := b.table.Inspect(ctx, key)
	if info != nil {
		b.mu.Lock()
		defer b.mu.Unlock()
		info.Revision = b.revision(b.locks[key].Handle, int(inspected.Add(1)))
	}
	return info, err
}

// Break removes what is there.
func (b *breaksAny) Break(_ context.Context, seen *locking.Info, stale bool) (bool, error) {
	if !stale {
		b.remove(seen.Key)
	}
	return !stale, nil
}

// breaksByTime compares other things than the revision.
type breaksByTime struct {
	*table
	also bool // the revision
}

func (b *breaksByTime) Break(ctx context.Context, seen *locking.Info, stale bool) (bool, error) {
	now, err := b.Inspect(ctx, seen.Key)
	if now == nil || !now.Acquired.Equal(seen.Acquired) {
		return false, err
	}
	if !b.also {
		seen = now
	}
	return b.table.Break(ctx, seen, stale)
}

// resumes acquires a lock again, if it may.
type resumes struct {
	*table
	may func(locking.Handle) bool
}

func (b *resumes) Resume(ctx context.Context, h locking.Handle) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if !b.may(h) {
		return locking.ErrLost
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if h.Key() == "" {
		return locking.ErrLost
	}
	b.put(h)
	return nil
}

// isFreeOr reports whether a lock isn't another holder's now.
func (b *table) isFreeOr(h locking.Handle) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	e, held := b.held(h.Key())
	return !held || e.Handle == h
}

// finds says too little, or does too much.
type finds struct {
	*table
	findings []locking.Finding
	writes   bool
}

func (b *finds) Examine(context.Context) ([]locking.Finding, error) {
	if b.writes {
		b.mu.Lock()
		defer b.mu.Unlock()
		clear(b.locks)
	}
	return b.findings, nil
}
