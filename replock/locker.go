package replock

import (
	"context"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/repolock/repolock/internal/identity"
	"github.com/repolock/repolock/internal/refresh"
	"github.com/repolock/repolock/store"
)

// Locker takes locks in one repository. It may be used concurrently, and holds
// nothing open: it needs no closing.
type Locker struct {
	store      store.Store
	opts       Options
	keys       keys
	schedule   refresh.Schedule
	self       identity.Process
	conditions conditions
	skews      skews
	randMu     sync.Mutex
	earlier    func(most time.Duration) time.Duration

	tellMu  sync.Mutex
	telling bool // of what is untold
	untold  []func()
}

// New returns a Locker for the repository on a store. It makes no request.
func New(s store.Store, opts Options) (*Locker, error) {
	if s == nil {
		return nil, errors.New("no store: open one first")
	}
	if err := opts.fill(); err != nil {
		return nil, err
	}
	l := &Locker{
		store:    store.Finite(s),
		opts:     opts,
		keys:     keys{opts.Prefix},
		schedule: refresh.ForTTL(opts.TTL),
		self:     *opts.Self,
	}
	if err := store.CheckKey(l.keys.exclusive()); err != nil {
		return nil, fmt.Errorf("prefix %q: %w", opts.Prefix, err)
	}
	l.earlier = l.early
	l.conditions.init(s.Properties())
	return l, nil
}

// Shared takes a shared lock for an operation such as a backup. See Exclusive.
func (l *Locker) Shared(ctx context.Context, operation string, opts ...AcquireOption) (*Lock, error) {
	return l.acquire(ctx, Shared, operation, opts...)
}

// Exclusive takes the exclusive lock for an operation such as a prune. Either
// the lock or the error is nil.
//
// If another holder has a conflicting lock the error is a *HeldError. If it
// can't be known whether somebody does, it is the store's error. It doesn't wait
// for a lock that is held, unless Wait is among the options; but a lock that one
// clock calls stale and another doesn't is watched for as long as that lock lives, if
// that is at most two minutes. One that lives longer counts as held, with the verdict Doubtful.
//
// ctx bounds the acquire, and may be cancelled after it: the lock is held, and refreshed,
// until Release. The lock's context has the values of ctx; see Parent for one that ends
// with another.
func (l *Locker) Exclusive(ctx context.Context, operation string, opts ...AcquireOption) (*Lock, error) {
	return l.acquire(ctx, Exclusive, operation, opts...)
}

// TTL is how long a lock outlives a holder that can't refresh it.
func (l *Locker) TTL() time.Duration { return l.opts.TTL }

// newID returns 128 random bits.
func (l *Locker) newID() (string, error) {
	var b [16]byte
	if err := l.random(b[:]); err != nil {
		return "", fmt.Errorf("no randomness for a lock's id: %w", err)
	}
	return hex.EncodeToString(b[:]), nil
}

// jitter returns a time from d/2 to 3d/2, so that contenders come apart.
func (l *Locker) jitter(d time.Duration) time.Duration {
	var b [8]byte
	if err := l.random(b[:]); err != nil {
		return d
	}
	return d/2 + time.Duration(binary.LittleEndian.Uint64(b[:])%uint64(d+1))
}

// early returns a time from 0 to most, so that holders come apart.
func (l *Locker) early(most time.Duration) time.Duration { return l.jitter(most) - most/2 }

func (l *Locker) random(b []byte) error {
	l.randMu.Lock()
	defer l.randMu.Unlock()
	_, err := io.ReadFull(l.opts.Rand, b)
	return err
}
