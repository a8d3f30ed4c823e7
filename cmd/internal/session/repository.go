package session

import (
	"context"
	"time"

	"github.com/repolock/repolock/cmd/internal/answers"
	"github.com/repolock/repolock/cmd/internal/events"
	"github.com/repolock/repolock/internal/lease"
	"github.com/repolock/repolock/replock"
	"github.com/repolock/repolock/store"
)

// Repository is the Locker of a repository.
type Repository struct {
	Open      func(context.Context) (store.Store, error)
	New       func(store.Store, replock.Options) (*replock.Locker, error)
	Options   replock.Options
	Mode      replock.Mode
	Operation string
	Wait      time.Duration
	Fence     bool // ask for a fencing token with an exclusive lock
	Remember  Memory

	// store is nil until Acquire opens it.
	store  *answers.Store
	locker *replock.Locker
}

// Acquire implements Locker.
func (r *Repository) Acquire(ctx context.Context, observe func(events.Event)) (*lease.Set, error) {
	held, err := r.Lease(ctx, observe)
	if err != nil {
		return nil, err
	}
	return lease.Join(nil, held), nil
}

// Lease opens the repository and acquires the lock.
func (r *Repository) Lease(ctx context.Context, observe func(events.Event)) (*lease.Lease, error) {
	if err := r.open(ctx, observe); err != nil {
		return nil, err
	}
	acquire := r.locker.Shared
	if r.Mode == replock.Exclusive {
		acquire = r.locker.Exclusive
	}
	// The lock doesn't end with ctx: the session, or the keeper, decides.
	opts := []replock.AcquireOption{replock.WithWait(r.Wait), replock.WithParent(context.WithoutCancel(ctx))}
	if r.Fence {
		opts = append(opts, replock.WithFencingToken())
	}
	lock, err := acquire(ctx, r.Operation, opts...)
	if b := r.locker.Beside(); b != r.Options.Beside {
		r.Remember.Note(b)
	}
	if err != nil {
		return nil, err
	}
	return lease.Of(lock.Context()), nil
}

// open opens the repository at the first Acquire.
func (r *Repository) open(ctx context.Context, observe func(events.Event)) error {
	if r.locker != nil {
		return nil
	}
	s, err := r.Open(ctx)
	if err != nil {
		return err
	}
	r.store = answers.Of(s)
	r.Options.Observe = func(e replock.Event) { observe(events.Event{Event: e}) }
	if r.Options.Beside == replock.BesideUnknown {
		r.Options.Beside = r.Remember.Beside()
	}
	r.locker, err = r.New(r.store, r.Options)
	return err
}

// Flush implements Locker.
func (r *Repository) Flush(ctx context.Context) {
	if r.locker != nil {
		r.locker.Flush(ctx)
	}
}

// Answered implements Locker.
func (r *Repository) Answered() bool { return r.store != nil && r.store.Answered() }
