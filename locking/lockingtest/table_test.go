package lockingtest_test

import (
	"context"
	"errors"
	"runtime"
	"strings"
	"sync"
	"time"

	"github.com/repolock/repolock/locking"
)

var errBusy = errors.New("busy")

// table keeps the contract. Its clock is moved by the test.
type table struct {
	mu      sync.Mutex
	now     time.Duration
	locks   map[string]entry
	numbers map[locking.Handle]int // that "counts" has stored
	shown   int                    // calls of Inspect
	forever bool
	bubble  bool // its clock also advances with the time
}

type entry struct {
	locking.Handle
	at, until time.Duration
}

func (e entry) revision() string { return e.at.String() }

func (b *table) time() time.Duration {
	if b.bubble {
		return b.now + time.Duration(time.Now().UnixNano())
	}
	return b.now
}

func (b *table) held(key string) (entry, bool) {
	e, ok := b.locks[key]
	return e, ok && (b.forever || b.time() < e.until)
}

func (b *table) TryLock(ctx context.Context, key string, ttl time.Duration) (h locking.Handle, ok bool, err error) {
	if b.bubble {
		time.Sleep(time.Millisecond)
	}
	if strings.Contains(key, " ") {
		return h, false, locking.ErrKey
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if _, held := b.held(key); held || ctx.Err() != nil {
		return h, false, ctx.Err()
	}
	h = locking.NewHandle(key, ttl)
	b.put(h)
	return h, true, nil
}

func (b *table) put(h locking.Handle) {
	b.now++ // no two locks are acquired at the same time
	b.locks[h.Key()] = entry{h, b.time(), b.time() + h.TTL()}
}

func (b *table) Renew(ctx context.Context, h locking.Handle) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	e, held := b.held(h.Key())
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if !held || e.Handle != h {
		return locking.ErrLost
	}
	e.until = b.time() + h.TTL()
	b.locks[h.Key()] = e
	return nil
}

func (b *table) Release(_ context.Context, h locking.Handle) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if e, held := b.held(h.Key()); !held || e.Handle != h {
		return locking.ErrLost
	}
	delete(b.locks, h.Key())
	return nil
}

func (b *table) Cleanup(context.Context) error { return nil }

func (b *table) Inspect(_ context.Context, key string) (*locking.Info, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	e, held := b.held(key)
	if !held {
		return nil, nil
	}
	return &locking.Info{Key: key, Acquired: time.Unix(0, int64(e.at)), Revision: e.revision()}, nil
}

func (b *table) Break(_ context.Context, seen *locking.Info, stale bool) (bool, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	e, held := b.held(seen.Key)
	if !held || stale || seen.Revision != e.revision() {
		return false, nil
	}
	delete(b.locks, seen.Key)
	return true, nil
}

// Resume also restores a lock that has expired, if no other holder has had it.
func (b *table) Resume(ctx context.Context, h locking.Handle) error {
	b.mu.Lock()
	if e, ok := b.locks[h.Key()]; ok && e.Handle == h && ctx.Err() == nil {
		e.until = b.time() + h.TTL()
		b.locks[h.Key()] = e
	}
	b.mu.Unlock()
	return b.Renew(ctx, h)
}

func (b *table) Examine(context.Context) ([]locking.Finding, error) {
	return []locking.Finding{{What: "memory", Found: "in one process", Verdict: locking.Doubtful, Advice: "don't stop it"}}, nil
}

// remove deletes the lock of a key with any token.
func (b *table) remove(key string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.locks, key)
}

func dawdle() {
	for range 50 {
		runtime.Gosched()
	}
}
