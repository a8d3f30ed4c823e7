package lockingtest_test

import (
	"context"
	"time"

	"github.com/repolock/repolock/locking"
)

type (
	closed    struct{ *table }
	fails     struct{ *table }
	reentrant struct {
		*table
		last locking.Handle
	}
	oneKey   struct{ *table }
	anyKey   struct{ *table }
	oneToken struct {
		*table
		last locking.Handle
	}
	keeps           struct{ *table }
	releasesTwice   struct{ *table }
	zero            struct{ *table }
	renewsAny       struct{ *table }
	deletes         struct{ *table }
	deletesSilently struct{ *table }
	noContext       struct{ *table }
	givesUp         struct{ *table }
	leaves          struct{ *table }
	short           struct{ *table }
	noExtension     struct{ *table }
	revives         struct{ *table }
	sweepsAll       struct{ *table }
	racy            struct{ *table }
	racyRelease     struct{ *table }
)

// TryLock acquires nothing.
func (b *closed) TryLock(context.Context, string, time.Duration) (h locking.Handle, ok bool, err error) {
	return h, false, nil
}

// TryLock returns an error if another holder has the lock.
func (b *fails) TryLock(ctx context.Context, key string, ttl time.Duration) (locking.Handle, bool, error) {
	h, ok, err := b.table.TryLock(ctx, key, ttl)
	if !ok && err == nil {
		err = errBusy
	}
	return h, ok, err
}

// TryLock acquires a lock again that this client holds.
func (b *reentrant) TryLock(ctx context.Context, key string, ttl time.Duration) (locking.Handle, bool, error) {
	if b.table.Renew(ctx, b.last) == nil && b.last.Key() == key {
		return b.last, true, nil
	}
	h, ok, err := b.table.TryLock(ctx, key, ttl)
	if ok {
		b.last = h
	}
	return h, ok, err
}

// TryLock takes any key for the same.
func (b *oneKey) TryLock(ctx context.Context, key string, ttl time.Duration) (locking.Handle, bool, error) {
	if key == "b" {
		key = "a"
	}
	return b.table.TryLock(ctx, key, ttl)
}

// TryLock replaces what it can't have in a key.
func (b *anyKey) TryLock(ctx context.Context, key string, ttl time.Duration) (locking.Handle, bool, error) {
	if key == "bad key" {
		key = "bad_key"
	}
	return b.table.TryLock(ctx, key, ttl)
}

// TryLock returns the same handle each time.
func (b *oneToken) TryLock(ctx context.Context, key string, ttl time.Duration) (h locking.Handle, ok bool, err error) {
	if h, ok, err = b.table.TryLock(ctx, key, ttl); !ok {
		return h, ok, err
	}
	if b.last.Key() != key || b.last.TTL() != ttl {
		b.last = h
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.put(b.last)
	return b.last, true, nil
}

// Release leaves the lock to its ttl.
func (b *keeps) Release(ctx context.Context, h locking.Handle) error { return b.Renew(ctx, h) }

// Release takes a lock that isn't there for its own success.
func (b *releasesTwice) Release(ctx context.Context, h locking.Handle) error {
	if seen, _ := b.Inspect(ctx, h.Key()); seen == nil {
		return nil
	}
	return b.table.Release(ctx, h)
}

// Release takes a zero handle for nothing to do.
func (b *zero) Release(ctx context.Context, h locking.Handle) error {
	if h == (locking.Handle{}) {
		return nil
	}
	return b.table.Release(ctx, h)
}

// Renew doesn't look at the token.
func (b *renewsAny) Renew(ctx context.Context, h locking.Handle) error {
	b.mu.Lock()
	e := b.locks[h.Key()]
	b.mu.Unlock()
	return b.table.Renew(ctx, e.Handle)
}

// Release doesn't look at the token.
func (b *deletes) Release(ctx context.Context, h locking.Handle) error {
	b.mu.Lock()
	e := b.locks[h.Key()]
	b.mu.Unlock()
	return b.table.Release(ctx, e.Handle)
}

// Release returns the right error, and has deleted the lock of another holder.
func (b *deletesSilently) Release(ctx context.Context, h locking.Handle) error {
	err := b.table.Release(ctx, h)
	b.remove(h.Key())
	return err
}

// TryLock doesn't look at its context.
func (b *noContext) TryLock(_ context.Context, key string, ttl time.Duration) (locking.Handle, bool, error) {
	return b.table.TryLock(context.Background(), key, ttl)
}

// Renew takes the end of its context for the loss of the lock.
func (b *givesUp) Renew(ctx context.Context, h locking.Handle) error {
	if ctx.Err() != nil {
		return locking.ErrLost
	}
	return b.table.Renew(ctx, h)
}

// TryLock doesn't take down what it has stored when its context ends.
func (b *leaves) TryLock(ctx context.Context, key string, ttl time.Duration) (locking.Handle, bool, error) {
	h, ok, err := b.table.TryLock(ctx, key, ttl)
	if ok && ttl == time.Minute { // that of this rule
		<-ctx.Done()
		return locking.Handle{}, false, ctx.Err()
	}
	return h, ok, err
}

// TryLock counts half of the ttl.
func (b *short) TryLock(ctx context.Context, key string, ttl time.Duration) (locking.Handle, bool, error) {
	return b.table.TryLock(ctx, key, ttl/2)
}

// Renew only looks.
func (b *noExtension) Renew(ctx context.Context, h locking.Handle) error {
	b.mu.Lock()
	e, held := b.held(h.Key())
	b.mu.Unlock()
	if held && e.Handle == h {
		return ctx.Err()
	}
	return locking.ErrLost
}

// Renew acquires a lock again that has expired.
func (b *revives) Renew(ctx context.Context, h locking.Handle) error {
	b.mu.Lock()
	if _, held := b.held(h.Key()); !held && h.TTL() > 0 && h.TTL() <= time.Minute {
		b.put(h)
	}
	b.mu.Unlock()
	return b.table.Renew(ctx, h)
}

// Cleanup takes every lock for an expired one.
func (b *sweepsAll) Cleanup(context.Context) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	clear(b.locks)
	return nil
}

// TryLock looks first and then writes.
func (b *racy) TryLock(ctx context.Context, key string, ttl time.Duration) (locking.Handle, bool, error) {
	if seen, err := b.Inspect(ctx, key); seen != nil || ctx.Err() != nil {
		return locking.Handle{}, false, err
	}
	dawdle()
	if h, ok, err := b.table.TryLock(ctx, key, ttl); ok || err != nil {
		return h, ok, err
	}
	h := locking.NewHandle(key, ttl)
	b.mu.Lock()
	defer b.mu.Unlock()
	b.put(h)
	return h, true, nil
}

// TryLock takes what it can't acquire for a leftover, as soon as its holder has let go once.
func (b *racyRelease) TryLock(ctx context.Context, key string, ttl time.Duration) (locking.Handle, bool, error) {
	before, err := b.Inspect(ctx, key)
	if before == nil || err != nil {
		return b.table.TryLock(ctx, key, ttl)
	}
	dawdle()
	if after, _ := b.Inspect(ctx, key); after != nil && *after != *before {
		b.remove(key) // of a newer holder
	}
	return b.table.TryLock(ctx, key, ttl)
}
