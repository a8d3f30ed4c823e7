//go:build linux

package main

import (
	"context"
	"fmt"
	"time"

	"github.com/repolock/repolock/internal/test/proxy"
	"github.com/repolock/repolock/replock"
)

// The delays that the proxy adds each way: none, as to a store in the same country, and as to
// one on another continent.
const (
	near = 20 * time.Millisecond
	far  = 80 * time.Millisecond
)

// contender is a way to lock, with its measurements.
type contender struct {
	row
	take take
}

// latencies measures acquire and release on MinIO.
func (b *bench) latencies(ctx context.Context) error {
	at, err := newBucket(ctx)
	if err != nil {
		return err
	}
	defer at.close()
	if !b.lacks("restic") {
		if _, err := timed(ctx, resticEnv(at), restic("init")); err != nil {
			return err
		}
	}
	for _, added := range []time.Duration{0, near, far} {
		at.proxy.Behave(proxy.Behaviour{Latency: added})
		for _, mode := range []replock.Mode{replock.Shared, replock.Exclusive} {
			name := fmt.Sprintf("%s lock on MinIO, %d ms added each way", mode, added.Milliseconds())
			b.say("%s", name)
			g := group{name: name}
			if err := b.libraries(ctx, at, mode, added, &g); err != nil {
				return err
			}
			if err := b.programs(ctx, at, mode, &g); err != nil {
				return err
			}
			b.table = append(b.table, g)
		}
	}
	return nil
}

// libraries measures the contenders in turn, so that other load on the machine meets all of
// them.
func (b *bench) libraries(ctx context.Context, at *bucket, mode replock.Mode, added time.Duration, g *group) error {
	all, err := contenders(ctx, at, mode)
	if err != nil {
		return err
	}
	for range b.trips(added) {
		for _, c := range all {
			if err := c.measure(ctx, at.proxy, c.take, nil); err != nil {
				return err
			}
		}
	}
	for _, c := range all {
		g.rows = append(g.rows, c.row)
	}
	return nil
}

// programs measures whole commands, also in turn.
func (b *bench) programs(ctx context.Context, at *bucket, mode replock.Mode, g *group) error {
	all := b.commands(at, mode)
	for range b.command {
		for _, c := range all {
			if err := c.measure(ctx, at.proxy); err != nil {
				return err
			}
		}
	}
	if b.lacks("restic") {
		g.rows = append(g.rows, lacking("restic", "restic"))
	}
	for _, c := range all {
		if c.locks != "" {
			g.rows = append(g.rows, c.locksRow)
		}
		g.rows = append(g.rows, c.more)
	}
	return nil
}

// contenders are those for a mode. Each has a store and connections of its own.
func contenders(ctx context.Context, at *bucket, mode replock.Mode) (all []*contender, err error) {
	s3, minio := at.s3(at.proxy.Host(), "locks"), at.minio(at.proxy.Host(), "locks")
	for _, c := range []struct {
		name, url string
		lock      lock
		exclusive bool // only
	}{
		{"repolock, s3, conditions=kept", s3 + "&conditions=kept", ours, true},
		{"repolock, minio, conditions=kept", minio + "&conditions=kept", ours, true},
		{"repolock, s3", s3, ours, false},
		{"repolock, minio", minio, ours, false},
		{"original protocol, s3", s3, theirs, false},
	} {
		if c.exclusive && mode != replock.Exclusive {
			continue
		}
		s, err := warm(ctx, c.url)
		if err != nil {
			return nil, err
		}
		all = append(all, &contender{row{name: c.name}, c.lock(s, mode)})
	}
	return all, nil
}
