package session

import (
	"context"
	"errors"
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

	// store is nil until it is opened.
	store    *answers.Store
	locker   *replock.Locker
	location string // of the store, if the Locker looks whether its bucket exists; else ""
	exists   bool   // the bucket is remembered, so the Locker doesn't look
}

// located is implemented by a store whose puts might create its bucket. Location distinguishes buckets of all servers.
type located interface{ Location() string }

// existing is a store whose bucket is remembered, so that the Locker needs no look before its first put.
type existing struct{ *answers.Store }

// Properties returns the properties of the store.
func (s existing) Properties() store.Properties {
	p := s.Store.Properties()
	p.PutCreates = false
	return p
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
	// The lock outlives ctx, until the session or the keeper ends it.
	opts := []replock.AcquireOption{replock.WithWait(r.Wait), replock.WithParent(context.WithoutCancel(ctx))}
	if r.Fence {
		opts = append(opts, replock.WithFencingToken())
	}
	lock, err := acquire(ctx, r.Operation, opts...)
	if b := r.locker.Beside(); b != r.Options.Beside {
		r.Remember.NoteBeside(b)
	}
	switch {
	case r.exists && errors.Is(err, store.ErrNotFound):
		r.Remember.ForgetExists()
	case r.location != "" && (err == nil || errors.Is(err, replock.ErrHeld)):
		r.Remember.NoteExists(r.location)
	}
	if err != nil {
		return nil, err
	}
	return lease.Of(lock.Context()), nil
}

// openStore opens the store, once.
func (r *Repository) openStore(ctx context.Context) error {
	if r.store != nil {
		return nil
	}
	s, err := r.Open(ctx)
	if err == nil {
		r.store = answers.Of(s)
	}
	return err
}

// open opens the repository at the first Acquire.
func (r *Repository) open(ctx context.Context, observe func(events.Event)) (err error) {
	if r.locker != nil {
		return nil
	}
	if err := r.openStore(ctx); err != nil {
		return err
	}
	s := r.store.Store
	r.Options.Observe = func(e replock.Event) { observe(events.Event{Event: e}) }
	if r.Options.Beside == replock.BesideUnknown {
		r.Options.Beside = r.Remember.Beside()
	}
	var locks store.Store = r.store
	if at, ok := s.(located); ok && s.Properties().PutCreates {
		if r.exists = r.Remember.Exists(at.Location()); r.exists {
			locks = existing{r.store}
		} else {
			r.location = at.Location()
		}
	}
	r.locker, err = r.New(locks, r.Options)
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
