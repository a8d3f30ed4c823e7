package replock

import (
	"context"
	"errors"

	"github.com/repolock/repolock/internal/fault"
	"github.com/repolock/repolock/store"
)

// raise puts our flag, and lock.exclusive if the store keeps If-None-Match, so that another's isn't
// overwritten. Both puts are sent at once, unless the flag's put has to prove the condition first.
func (l *Locker) raise(ctx context.Context, t *try) error {
	l.date(t)
	absent := &l.conditions.absent
	switch {
	case t.mode == Exclusive && absent.holds():
		claimed := make(chan error, 1)
		go func() { claimed <- l.claim(ctx, t, nil) }()
		err := l.putFlag(ctx, t)
		return fault.Join(err, <-claimed)
	case t.mode == Exclusive && absent.open():
		if err := l.proveAbsent(ctx, t); err != nil || !absent.holds() {
			return err
		}
		return l.claim(ctx, t, nil)
	default:
		return l.putFlag(ctx, t)
	}
}

func (l *Locker) putFlag(ctx context.Context, t *try) error {
	t.flag.maybe = true
	o, err := repeat(ctx, l, l.times.Timeout, "put "+t.flag.key, l.send(t, t.flag.key, store.PutOptions{}))
	if err != nil {
		if errors.Is(err, store.ErrPermission) || errors.Is(err, store.ErrNotFound) || errors.Is(err, store.ErrIrregular) {
			t.flag.maybe = false
		}
		return fault.While("writing the lock", err)
	}
	l.raised(t, o)
	return nil
}

// raised records the answer to a put of our flag.
func (l *Locker) raised(t *try, o store.Object) {
	answered := l.opts.Clock.Elapsed()
	t.flag.put, t.flag.etag, t.flag.sent = true, o.ETag, t.sent
	t.raised = pageTime{now: o.Now, asked: t.sent}
	if !o.ModTime.IsZero() {
		t.dated = storeTime{o.ModTime, answered}
		t.st = t.dated
	}
}
