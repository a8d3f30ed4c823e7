package also

import (
	"context"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/repolock/repolock/cmd/internal/session"
	"github.com/repolock/repolock/internal/clock"
	"github.com/repolock/repolock/internal/fault"
	"github.com/repolock/repolock/internal/parallel"
	"github.com/repolock/repolock/replock"
)

// setLock is all locks of a set. It is named as its first one: the repository's, if there is
// one.
type setLock struct {
	session.Lock // the one that it is named as
	ctx          context.Context
	cancel       context.CancelCauseFunc

	mu    sync.Mutex
	locks []session.Lock // in the set's order; a resumed one takes the place of the lost one
}

func newSetLock(locks []session.Lock) *setLock {
	ctx, cancel := context.WithCancelCause(context.Background())
	for _, l := range locks {
		held := l.Context() // a resume can give the same lock another one
		context.AfterFunc(held, func() { cancel(context.Cause(held)) })
	}
	return &setLock{Lock: locks[0], ctx: ctx, cancel: cancel, locks: locks}
}

func (l *setLock) all() []session.Lock {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.locks)
}

// IDs returns the ids of all locks.
func (l *setLock) IDs() (ids []string) {
	for _, one := range l.all() {
		ids = append(ids, one.ID())
	}
	return ids
}

// Connections returns those that locks last with.
func (l *setLock) Connections() (all []syscall.Conn) {
	for _, one := range l.all() {
		if h, ok := one.(*held); ok {
			if c := h.connection(); c != nil {
				all = append(all, c)
			}
		}
	}
	return all
}

// Context ends with that of the first lock that ends.
func (l *setLock) Context() context.Context { return l.ctx }

// Deadline is the earliest.
func (l *setLock) Deadline() time.Duration {
	var ends []time.Duration
	for _, one := range l.all() {
		ends = append(ends, one.Deadline())
	}
	return slices.Min(ends)
}

// Seen is that of the lock that was looked at least recently.
func (l *setLock) Seen() clock.Reading {
	return slices.MinFunc(l.readings(), func(a, b clock.Reading) int { return int(a.Elapsed - b.Elapsed) })
}

func (l *setLock) readings() (seen []clock.Reading) {
	for _, one := range l.all() {
		seen = append(seen, one.Seen())
	}
	return seen
}

// Lost is the loss of any lock. One that is definite comes first.
func (l *setLock) Lost() (lost *replock.LostError) {
	for _, one := range l.all() {
		if loss := one.Lost(); loss != nil && (lost == nil || loss.Definite && !lost.Definite) {
			lost = loss
		}
	}
	return lost
}

// Check looks at all locks.
func (l *setLock) Check(ctx context.Context) error {
	return l.each(func(one session.Lock) error { return one.Check(ctx) })
}

// Renew renews all locks.
func (l *setLock) Renew(ctx context.Context) error {
	return l.each(func(one session.Lock) error { return one.Renew(ctx) })
}

// each calls f with all locks at once, and joins its errors.
func (l *setLock) each(f func(session.Lock) error) error {
	all := l.all()
	errs := make([]error, len(all))
	parallel.Each(len(all), len(all), func(i int) { errs[i] = f(all[i]) })
	return fault.Join(errs...)
}

// Finish passes the result of the work on.
func (l *setLock) Finish(success bool) {
	for _, one := range l.all() {
		if f, ok := one.(session.Finisher); ok {
			f.Finish(success)
		}
	}
}

// Release releases all locks, the last one first.
func (l *setLock) Release(ctx context.Context) error {
	defer l.cancel(replock.ErrReleased)
	return releaseAll(ctx, l.all())
}

// Resume resumes the locks that are lost, unless another one is lost for good meanwhile. If one
// can't be, those that were are released with the set.
func (l *setLock) Resume(ctx context.Context) (session.Lock, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	for _, one := range l.all() {
		if held := one.Context(); one.Lost() == nil {
			defer context.AfterFunc(held, func() { cancel(context.Cause(held)) })()
		}
	}
	for {
		if lost := l.Lost(); lost == nil {
			return newSetLock(l.all()), nil
		} else if lost.Definite {
			return nil, lost
		}
		if err := l.resumeLost(ctx); err != nil {
			return nil, err
		}
	}
}

// resumeLost resumes each lock that is lost now.
func (l *setLock) resumeLost(ctx context.Context) error {
	for i, one := range l.all() {
		if one.Lost() == nil {
			continue
		}
		again, err := one.Resume(ctx)
		if again != nil {
			l.mu.Lock()
			l.locks[i] = again
			l.mu.Unlock()
		}
		if err != nil {
			return err
		}
	}
	return nil
}
