// Package repository keeps locks in a backup repository: each is an exclusive named lock of
// package replock. It serves where there is a bucket or a directory, and neither Redis nor
// PostgreSQL.
//
//	st, err := open.Store(ctx, "s3://backups/nightly")
//	b, err := repository.New(st, repository.Options{})
//	ran, err := locking.Guard(ctx, b, locking.RequireGlobal, "report", time.Minute, report)
//
// A key is the lock's name, as of replock.Options.Name: other programs that use replock, and the
// repolock command with --name, see the same lock. The repository's own lock, which has no name,
// can't be a key.
//
// # What frees a lock
//
// A replock lock refreshes itself. A handle doesn't: it lasts for its ttl after TryLock, or after
// the last Renew that succeeded. Then this package releases the lock, by the injected clock that
// counts suspends. So a program that forgets a handle, or hangs in front of Renew, loses the
// lock although its process lives. Meanwhile the lock's own refreshes go on; a holder that
// renews at a third of the ttl makes them unnecessary.
//
// The lock of a process that has died or stands still is free one ttl after its last refresh,
// which is at most one and a half after its last Renew. The store's clock and the acquirer's
// must agree on it; if they don't, TryLock watches that lock.
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

// Options are what others read of the holder, and how it keeps its locks. The zero value will do.
type Options struct {
	// Operation is what the locks are for, 1 to 256 bytes; "lock" if it is empty.
	Operation string
	// Version is the version of the program, Metadata is more for others to read. They must
	// hold no secrets.
	Version  string
	Metadata map[string]string
	// Look is replock.Options.Look: how often a holder looks whether its lock was broken.
	Look time.Duration
	// Logger receives the events of the locks. Nil discards them.
	Logger *slog.Logger
	// Clock is for tests. Nil is the machine's clock.
	Clock locking.Clock
}

// Backend keeps its locks in one repository. Its methods can be called concurrently. Only a lock
// that is held has goroutines, so a Backend needn't be closed.
type Backend struct {
	store *store.Answers
	opts  Options
	clock clock.Clock

	mu      sync.Mutex
	lockers map[setting]*replock.Locker
	holds   map[locking.Handle]*hold
	doubts  map[setting]bool // locks that a TryLock had no time to watch
}

// setting is what distinguishes one Locker from another.
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

// New returns a backend for the repository in a store. It makes no request. The error is for a
// missing store, or for an option that is out of its bounds.
func New(s store.Store, opts Options) (*Backend, error) {
	if s == nil {
		return nil, errors.New("no store: open one first")
	}
	opts.Operation = cmp.Or(opts.Operation, "lock")
	if err := replock.CheckOperation(opts.Operation); err != nil {
		return nil, err
	}
	b := &Backend{
		store: &store.Answers{Store: s}, opts: opts, clock: opts.Clock,
		lockers: make(map[setting]*replock.Locker), holds: make(map[locking.Handle]*hold),
		doubts: make(map[setting]bool),
	}
	if b.clock == nil {
		b.clock = clock.System{}
	}
	_, err := b.locker("a", max(replock.DefaultTTL, opts.Look))
	return b, err
}

// maxLockers bounds what is remembered. A Locker that is forgotten learns again, in a request or
// two, how far the store's conditional puts can be relied on.
const maxLockers = 1000

// locker returns the Locker of a name and a ttl. Its error is for a ttl that is out of bounds, or
// for an option.
func (b *Backend) locker(name string, ttl time.Duration) (*replock.Locker, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if l, ok := b.lockers[setting{name, ttl}]; ok {
		return l, nil
	}
	if ttl <= 0 { // which is replock's default
		return nil, fmt.Errorf("ttl %v: must be from %v to %v", ttl, replock.MinTTL, replock.MaxTTL)
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

// TryLock acquires the lock of a name, which replock.CheckName describes, for a ttl from
// replock.MinTTL to replock.MaxTTL. It doesn't wait for a holder. Two cases take longer than its
// two or three requests: two acquirers that meet look again, for a second or two; and a lock that
// is stale by one clock and not by another is watched, for up to two minutes. ctx bounds both:
// after its end such a lock counts as held, until Cleanup has watched it.
//
// After an error nothing is left in the store, or, if the store couldn't be reached, only until
// the ttl is over.
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

// doubt notes a lock that is perhaps stale.
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

// Cleanup watches each lock in doubt that TryLock had no time to watch, one after the other, and
// removes those that stay unchanged for their whole ttl. It can take two minutes for each; ctx
// bounds it. It has nothing else to do, since an acquirer removes the stale locks in its way.
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

// check returns an error unless key can be the name of a lock.
func check(ctx context.Context, key string) error {
	if err := replock.CheckName(key); err != nil {
		return fmt.Errorf("%w: %w", locking.ErrKey, err)
	}
	return ctx.Err()
}
