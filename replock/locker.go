package replock

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"github.com/repolock/repolock/internal/identity"
	"github.com/repolock/repolock/internal/refresh"
	"github.com/repolock/repolock/internal/serial"
	"github.com/repolock/repolock/store"
)

// Locker acquires locks in one repository. Its methods can be called concurrently. It keeps no
// connection or file open, and needn't be closed.
type Locker struct {
	store      store.Store
	opts       Options
	keys       keys
	times      refresh.Schedule
	self       identity.Process
	conditions conditions
	reached    atomic.Bool // a listing was answered
	randMu     sync.Mutex  // guards rand
	rand       io.Reader
	earlier    func(most time.Duration) time.Duration
	pace       pace
	events     serial.Queue // for the logger and the observer
}

// New returns a Locker for the repository in a store. It makes no request. It returns an error if
// the store is nil, or if an option is out of bounds.
func New(s store.Store, opts Options) (*Locker, error) {
	if s == nil {
		return nil, errors.New("no store: open one first")
	}
	if err := opts.fill(); err != nil {
		return nil, err
	}
	l := &Locker{
		store: store.Finite(s),
		opts:  opts,
		keys:  keys{opts.Prefix},
		times: refresh.ForTTL(opts.TTL),
		rand:  rand.Reader,
		pace:  ownPace,
	}
	if p, ok := opts.Clock.(process); ok {
		l.rand, l.self = p.Process()
	} else {
		l.self = identity.Self()
	}
	if err := store.CheckKey(l.keys.exclusive()); err != nil {
		return nil, fmt.Errorf("prefix %q: %w", opts.Prefix, err)
	}
	l.earlier = l.early
	l.conditions.init(s.Properties())
	return l, nil
}

// Shared acquires a shared lock for an operation such as a backup. It costs one put and one list.
// If the store has PutCreates, the first acquire of a Locker costs one list more. In all other
// respects Shared is like Exclusive.
func (l *Locker) Shared(ctx context.Context, operation string, opts ...AcquireOption) (*Lock, error) {
	return l.acquire(ctx, Shared, operation, opts...)
}

// Exclusive acquires the exclusive lock for an operation such as a prune. It returns either a
// lock or an error. It costs two puts and one list if the store has If-None-Match, else two puts
// and two lists, and more requests only if other locks are stored.
//
// A *HeldError is returned if another holder has a conflicting lock. ErrUnsure and ErrSlow are
// returned if the store was reached, and its answers don't show whether another holder has one.
// Any other error is the store's. After an error this acquire has removed its objects from the
// store. If the store couldn't be reached, they expire with the ttl.
//
// Exclusive doesn't wait for a lock that is held, unless Wait is among the options. But it
// watches a lock that is stale by one clock and not by another, for up to two minutes, until
// that lock changes or has stayed unchanged for its whole ttl. A lock with a longer ttl counts
// as held, with the verdict Doubtful.
//
// ctx bounds the acquire, and is the parent of the lock's context: if ctx ends, the work under the
// lock must stop. The lock itself is held, and refreshed, until Release. A context that bounds the
// acquire alone needs the option Parent, or the work ends with it:
//
//	soon, cancel := context.WithTimeout(ctx, time.Minute)
//	lock, err := locker.Exclusive(soon, "prune", replock.Parent(ctx))
//	cancel() // the work goes on until ctx ends
//
// If the work outlives ctx, because one request acquires the lock and a later one releases it, use
// Parent(context.WithoutCancel(ctx)).
func (l *Locker) Exclusive(ctx context.Context, operation string, opts ...AcquireOption) (*Lock, error) {
	return l.acquire(ctx, Exclusive, operation, opts...)
}

// newID returns 128 random bits in hex.
func (l *Locker) newID() (string, error) {
	var b [16]byte
	if err := l.random(b[:]); err != nil {
		return "", fmt.Errorf("no randomness for a lock's id: %w", err)
	}
	return hex.EncodeToString(b[:]), nil
}

// jitter returns a random time from d/2 to 3d/2, so that contenders don't act at the same time.
func (l *Locker) jitter(d time.Duration) time.Duration {
	var b [8]byte
	if err := l.random(b[:]); err != nil {
		return d
	}
	return d/2 + time.Duration(binary.LittleEndian.Uint64(b[:])%uint64(d+1))
}

// early returns a random time from 0 to most, so that holders don't refresh at the same time.
func (l *Locker) early(most time.Duration) time.Duration { return l.jitter(most) - most/2 }

func (l *Locker) random(b []byte) error {
	l.randMu.Lock()
	defer l.randMu.Unlock()
	_, err := io.ReadFull(l.rand, b)
	return err
}
