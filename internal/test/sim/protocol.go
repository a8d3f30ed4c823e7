package sim

import (
	"context"
	"io"
	"time"

	"github.com/repolock/repolock/internal/clock"
	"github.com/repolock/repolock/internal/identity"
	"github.com/repolock/repolock/replock"
	"github.com/repolock/repolock/store"
)

// Protocol is what the clients follow.
type Protocol interface {
	Join(store.Store, Member) Participant
}

// Member is one participant.
type Member struct {
	Name  string
	Lock  string // the name of the lock, for a repository that has several
	TTL   time.Duration
	Clock clock.Clock
	Rand  io.Reader
	Self  identity.Process
	// Granted is called when a lock with this id is granted or resumed, before the call returns.
	Granted func(id string)
}

// Participant is a process that can take locks.
type Participant interface {
	// Lock takes a lock, and waits up to that long while another client holds it.
	Lock(ctx context.Context, mode replock.Mode, operation string, wait time.Duration) (Held, error)
	// Break deletes all locks, or only those that it considers stale.
	Break(ctx context.Context, stale bool) error
}

// Held is a lock that was granted. See replock.Lock for the methods.
type Held interface {
	Key() string
	ID() string
	Context() context.Context
	Deadline() time.Duration
	Seen() replock.Reading
	Renew(context.Context) error
	Check(context.Context) error
	Resume(context.Context) (Held, error)
	Release(context.Context) error
}

// engine is the protocol under test.
type engine struct{}

func (engine) Join(s store.Store, m Member) Participant {
	l, err := replock.New(s, replock.Options{Name: m.Lock, TTL: m.TTL, Clock: m.Clock, Rand: m.Rand, Self: (*replock.Process)(&m.Self), Observe: func(e replock.Event) {
		if e.Kind == replock.EventAcquired || e.Kind == replock.EventResumed {
			m.Granted(e.ID)
		}
	}})
	if err != nil {
		panic(err) // a plan with impossible options
	}
	return locker{l}
}

type locker struct{ *replock.Locker }

func (l locker) Lock(ctx context.Context, mode replock.Mode, operation string, wait time.Duration) (Held, error) {
	take := l.Shared
	if mode == replock.Exclusive {
		take = l.Exclusive
	}
	opts := []replock.AcquireOption{replock.Wait(wait), replock.Parent(ctx)}
	if s, _ := ctx.Value(forStep{}).(*step); s != nil && s.fence {
		opts = append(opts, replock.Fence())
	}
	k, err := take(ctx, operation, opts...)
	if err != nil {
		return nil, err
	}
	return lock{k}, nil
}

func (l locker) Break(ctx context.Context, stale bool) error {
	_, err := l.Locker.Break(ctx, replock.BreakOptions{Stale: stale})
	return err
}

type lock struct{ *replock.Lock }

func (k lock) Resume(ctx context.Context) (Held, error) {
	next, err := k.Lock.Resume(ctx)
	if err != nil {
		return nil, err
	}
	return lock{next}, nil
}
