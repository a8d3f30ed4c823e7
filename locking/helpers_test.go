package locking_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/repolock/repolock/internal/test/leapclock"
	"github.com/repolock/repolock/locking"
	"github.com/repolock/repolock/locking/memory"
)

const ttl = time.Minute

var errDown = errors.New("down")

// backend is one in memory whose methods a test can replace.
type backend struct {
	*memory.Backend
	clock   *leapclock.Clock
	tryLock func(context.Context) error
	renew   func(context.Context) error
	release func(context.Context) error
	renewed []time.Duration
}

func newBackend() *backend {
	c := leapclock.New()
	return &backend{Backend: memory.New(c), clock: c}
}

func (b *backend) TryLock(ctx context.Context, key string, ttl time.Duration) (locking.Handle, bool, error) {
	if b.tryLock != nil {
		if err := b.tryLock(ctx); err != nil {
			return locking.Handle{}, false, err
		}
	}
	return b.Backend.TryLock(ctx, key, ttl)
}

func (b *backend) Renew(ctx context.Context, h locking.Handle) error {
	b.renewed = append(b.renewed, b.clock.Elapsed())
	if b.renew != nil {
		if err := b.renew(ctx); err != nil {
			return err
		}
	}
	return b.Backend.Renew(ctx, h)
}

func (b *backend) Release(ctx context.Context, h locking.Handle) error {
	if b.release != nil {
		if err := b.release(ctx); err != nil {
			return err
		}
	}
	return b.Backend.Release(ctx, h)
}

func (b *backend) guard(t *testing.T, f func(context.Context) error) (bool, error) {
	t.Helper()
	return locking.GuardAt(t.Context(), b.clock, b, locking.RequireGlobal, "k", ttl, f)
}

// isFree checks that nothing is held.
func (b *backend) isFree(t *testing.T) {
	t.Helper()
	if info, err := b.Inspect(t.Context(), "k"); info != nil || err != nil {
		t.Errorf("still held: %+v, %v", info, err)
	}
}

// runs returns a function that takes its time, unless its context ends.
func runs(d time.Duration) func(context.Context) error {
	return func(ctx context.Context) error {
		select {
		case <-ctx.Done():
		case <-time.After(d):
		}
		return nil
	}
}
