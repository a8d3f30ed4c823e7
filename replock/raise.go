package replock

import (
	"context"
	"errors"
	"fmt"

	"github.com/repolock/repolock/store"
)

// raise puts our flag and, beside it, lock.exclusive, if the store keeps the condition that it
// must not overwrite another's.
func (l *Locker) raise(ctx context.Context, t *try) error {
	l.date(t)
	if t.mode == Shared || !l.conditions.absent.holds() {
		return l.putFlag(ctx, t)
	}
	claimed := make(chan error, 1)
	go func() { claimed <- l.claim(ctx, t, nil) }()
	err := l.putFlag(ctx, t)
	return join(err, <-claimed)
}

func (l *Locker) putFlag(ctx context.Context, t *try) error {
	t.flag.maybe = true
	o, err := repeat(ctx, l, "put "+t.flag.key, l.send(t, t.flag.key, store.PutOptions{}))
	if err != nil {
		if errors.Is(err, store.ErrPermission) || errors.Is(err, store.ErrNotFound) || errors.Is(err, store.ErrIrregular) {
			t.flag.maybe = false
		}
		return fmt.Errorf("writing the lock: %w", err)
	}
	answered := l.opts.Clock.Elapsed()
	t.flag.put, t.flag.etag, t.flag.sent = true, o.ETag, t.sent
	if !o.ModTime.IsZero() {
		t.dated = storeTime{o.ModTime, answered}
		t.st = t.dated
	}
	return nil
}
