//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/repolock/repolock/internal/test/proxy"
	"github.com/repolock/repolock/replock"
	"github.com/repolock/repolock/store"
)

// amongOthers measures acquires among the shared locks of others: live ones, and those that
// crashed holders have left.
func (b *bench) amongOthers(ctx context.Context) error {
	at, err := newBucket(ctx)
	if err != nil {
		return err
	}
	defer at.close()
	shared := group{name: "shared lock on MinIO, among others' shared locks"}
	exclusive := group{name: "exclusive lock on MinIO, among others' shared locks"}
	for _, n := range b.live {
		c, err := b.newCrowd(ctx, at, n)
		if err != nil {
			return err
		}
		s, e, err := c.live(ctx, b.crowd)
		if err != nil {
			return err
		}
		shared.rows, exclusive.rows = append(shared.rows, s), append(exclusive.rows, e)
		if n < slices.Max(b.live) {
			continue
		}
		b.say("waiting for the %d to expire", n)
		if s, e, err = c.stale(ctx, b.crowd); err != nil {
			return err
		}
		shared.rows, exclusive.rows = append(shared.rows, s), append(exclusive.rows, e)
	}
	b.table = append(b.table, shared, exclusive)
	return nil
}

// crowd is a repository with the flags of n shared locks of other machines.
type crowd struct {
	n     int
	put   time.Time // the last of them
	proxy *proxy.Proxy
	store store.Store // through the proxy
}

// settling is the age from which a flag isn't taken for that of an acquirer about to withdraw.
const settling = 4 * time.Second

func (b *bench) newCrowd(ctx context.Context, at *bucket, n int) (*crowd, error) {
	b.say("%d shared locks on MinIO", n)
	prefix := fmt.Sprintf("crowd-%d", n)
	direct, err := warm(ctx, at.s3(at.host, prefix))
	if err != nil {
		return nil, err
	}
	s, err := warm(ctx, at.s3(at.proxy.Host(), prefix)+"&conditions=kept")
	if err != nil {
		return nil, err
	}
	if err := flags(ctx, direct, n); err != nil {
		return nil, err
	}
	c := &crowd{n: n, put: time.Now(), proxy: at.proxy, store: s}
	return c, sleep(ctx, settling)
}

// live measures a shared acquire, which succeeds, and an exclusive one, which fails if there
// are others.
func (c *crowd) live(ctx context.Context, n int) (shared, exclusive row, err error) {
	refused, outcome := isHeld, ", refused"
	if c.n == 0 {
		refused, outcome = nil, ""
	}
	shared, exclusive = row{name: fmt.Sprintf("%d live", c.n)}, row{name: fmt.Sprintf("%d live%s", c.n, outcome)}
	for range n {
		if err := shared.measure(ctx, c.proxy, ours(c.store, replock.Shared), nil); err != nil {
			return shared, exclusive, err
		}
		if err := exclusive.measure(ctx, c.proxy, ours(c.store, replock.Exclusive), refused); err != nil {
			return shared, exclusive, err
		}
	}
	return shared, exclusive, nil
}

func isHeld(err error) bool { return errors.Is(err, replock.ErrHeld) }

// stale waits until no lock is live any more, and measures a shared acquire, which ignores
// them, and an exclusive one, which removes them, and so runs only once.
func (c *crowd) stale(ctx context.Context, n int) (shared, exclusive row, err error) {
	const margin = 4 * time.Second // that the engine adds for the store's clock, and as much again
	if err := sleep(ctx, time.Until(c.put.Add(replock.DefaultTTL+margin))); err != nil {
		return shared, exclusive, err
	}
	shared, exclusive = row{name: fmt.Sprintf("%d stale", c.n)}, row{name: fmt.Sprintf("%d stale, removed", c.n)}
	for range n {
		if err := shared.measure(ctx, c.proxy, ours(c.store, replock.Shared), nil); err != nil {
			return shared, exclusive, err
		}
	}
	if err := exclusive.measure(ctx, c.proxy, ours(c.store, replock.Exclusive), nil); err != nil {
		return shared, exclusive, err
	}
	left, err := c.store.List(ctx, replock.DefaultPrefix, "")
	if err == nil && len(left.Objects) > 0 {
		err = fmt.Errorf("%d or more of %d stale locks weren't removed", len(left.Objects), c.n)
	}
	return shared, exclusive, err
}

func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
