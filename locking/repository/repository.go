// Package repository keeps locks in a backup repository: each lock is an exclusive named lock of package
// replock. It needs only a bucket or a directory, and no server.
//
//	st, err := open.Store(ctx, "s3://backups/nightly")
//	b, err := repository.New(st, repository.Options{})
//	ran, err := locking.Guard(ctx, b, locking.RequireGlobal, "report", time.Minute, report)
//
// A key is the Name of replock.Options. Programs that use replock, and the repolock command with --name,
// see the same locks. The repository's own lock has no name, and so no key.
//
// # Expiry
//
// A lock of replock refreshes itself, but a handle must be renewed. This package releases the lock when
// the ttl has passed since TryLock or the last successful Renew. So a program that forgets a handle, or
// hangs before Renew, loses the lock although its process lives. A holder that renews at each third of
// the ttl leaves nothing for the lock's own refreshes to do.
//
// If the process is dead or stopped, the lock is free one ttl after its last refresh, and so at most one
// and a half ttl after its last Renew. The store's clock and the acquirer's clock must agree that the
// ttl has passed. If they don't, TryLock watches the lock.
package repository

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/repolock/repolock/internal/clock"
	"github.com/repolock/repolock/locking"
	"github.com/repolock/repolock/replock"
	"github.com/repolock/repolock/store"
)

// Options of a Backend. The zero value suits most programs.
type Options struct {
	// Operation is the purpose of the locks, 1 to 256 bytes. It defaults to "lock".
	Operation string
	// Version is the version of the program. Metadata is for readers of the locks. Neither is secret.
	Version  string
	Metadata map[string]string
	// Look is replock.Options.Look: how often a holder checks whether its lock was broken.
	Look time.Duration
	// Logger receives the events of the locks. Nil discards them.
	Logger *slog.Logger
	// Clock is for tests. Nil is the machine's clock.
	Clock locking.Clock
}

// Backend keeps locks in one repository. Its methods can be called concurrently. It needn't be closed,
// because only held locks have goroutines.
type Backend struct {
	store *store.Answers
	opts  Options
	clock clock.Clock

	mu      sync.Mutex
	lockers map[setting]*replock.Locker
	holds   map[locking.Handle]*hold
	doubts  map[setting]bool // locks that TryLock had no time to watch
}

// setting is the key of a Locker.
type setting struct {
	name string
	ttl  time.Duration
}

var (
	_ locking.Backend   = (*Backend)(nil)
	_ locking.Inspector = (*Backend)(nil)
	_ locking.Breaker   = (*Backend)(nil)
	_ locking.Resumer   = (*Backend)(nil)
)

// New returns a backend for the repository in a store. It makes no request. It returns an error if s is
// nil or an option is out of bounds.
func New(s store.Store, opts Options) (*Backend, error) {
	if s == nil {
		return nil, errors.New("no store: open one first")
	}
	opts.Operation = cmp.Or(opts.Operation, "lock")
	if err := replock.CheckOperation(opts.Operation); err != nil {
		return nil, err
	}
	b := &Backend{
		store: &store.Answers{Store: s}, opts: opts, clock: cmp.Or[clock.Clock](opts.Clock, clock.System{}),
		lockers: make(map[setting]*replock.Locker), holds: make(map[locking.Handle]*hold),
		doubts: make(map[setting]bool),
	}
	_, err := b.locker("a", max(replock.DefaultTTL, opts.Look))
	return b, err
}

// maxLockers bounds the number of Lockers. A new Locker needs a request or two to find out whether the
// store's conditional puts work.
const maxLockers = 1000

// locker returns the Locker of a name and a ttl. It returns an error if the ttl or an option is out of
// bounds.
func (b *Backend) locker(name string, ttl time.Duration) (*replock.Locker, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if l, ok := b.lockers[setting{name, ttl}]; ok {
		return l, nil
	}
	if ttl <= 0 { // replock would take its default
		return nil, fmt.Errorf("ttl %v: use %v to %v", ttl, replock.MinTTL, replock.MaxTTL)
	}
	l, err := replock.New(b.store, replock.Options{
		Name: name, TTL: ttl, Look: b.opts.Look, Version: b.opts.Version, Metadata: b.opts.Metadata,
		Logger: b.opts.Logger, Clock: b.clock,
	})
	if err != nil {
		return nil, err
	}
	if len(b.lockers) >= maxLockers {
		clear(b.lockers)
	}
	b.lockers[setting{name, ttl}] = l
	return l, nil
}

// TryLock acquires the lock of a name (see replock.CheckName). The ttl is from replock.MinTTL to
// replock.MaxTTL. TryLock sends two or three requests, and takes longer in two cases. If two acquirers meet,
// they look again, for a second or two. If a lock is stale by one clock and not by another, TryLock
// watches it for up to two minutes. If ctx ends earlier, the lock counts as held, until Cleanup has
// watched it.
//
// After an error nothing is in the store, or it expires with the ttl if the store wasn't reached.
func (b *Backend) TryLock(ctx context.Context, key string, ttl time.Duration) (h locking.Handle, ok bool, err error) {
	if err := check(ctx, key); err != nil {
		return h, false, err
	}
	locker, err := b.locker(key, ttl)
	if err != nil {
		return h, false, fmt.Errorf("lock %q: %w", key, err)
	}
	silent := b.store.Listen()
	lock, err := locker.Exclusive(ctx, b.opts.Operation, replock.Parent(context.WithoutCancel(ctx)))
	switch {
	case errors.Is(err, replock.ErrHeld):
		b.doubt(setting{key, ttl}, err)
		return h, false, nil
	case err != nil:
		return h, false, fmt.Errorf("lock %q: %w", key, classed(err, silent()))
	}
	h = locking.NewHandle(key, ttl)
	b.keep(h, lock)
	return h, true, nil
}

// doubt records a lock that is stale by one clock alone, for Cleanup.
func (b *Backend) doubt(name setting, err error) {
	held, ok := errors.AsType[*replock.HeldError](err)
	if !ok || slices.ContainsFunc(held.Holders, func(i replock.Info) bool { return i.Verdict != replock.Doubtful }) {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.doubts) < maxLockers {
		b.doubts[name] = true
	}
}

// Cleanup watches the locks that TryLock had no time to watch, one after the other, for up to two
// minutes each. It removes each lock that stays unchanged for its ttl. Other stale locks need no Cleanup,
// because the next acquirer removes them.
func (b *Backend) Cleanup(ctx context.Context) error {
	b.mu.Lock()
	names := slices.Collect(maps.Keys(b.doubts))
	clear(b.doubts)
	b.mu.Unlock()
	for _, name := range names {
		h, ok, err := b.TryLock(ctx, name.name, name.ttl)
		if err != nil {
			return err
		}
		if ok {
			if err := b.Release(ctx, h); err != nil {
				return err
			}
		}
	}
	return ctx.Err()
}

// check returns an error if key can't be the name of a lock, or ctx has ended.
func check(ctx context.Context, key string) error {
	if err := replock.CheckName(key); err != nil {
		return fmt.Errorf("%w: %w", locking.ErrKey, err)
	}
	return ctx.Err()
}
