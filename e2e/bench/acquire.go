//go:build linux

package main

import (
	"context"
	"fmt"
	"time"

	"github.com/repolock/repolock/internal/clock"
	"github.com/repolock/repolock/internal/test/cloudsticlock"
	"github.com/repolock/repolock/internal/test/proxy"
	"github.com/repolock/repolock/replock"
	"github.com/repolock/repolock/store"
)

// take acquires a lock as a program does that has just begun, and returns a function that
// releases it.
type take func(context.Context) (release func(context.Context) error, err error)

// lock is a protocol: it returns a take on a store.
type lock func(store.Store, replock.Mode) take

// ours is the engine in a new process: it knows nothing of the store yet.
func ours(s store.Store, mode replock.Mode) take {
	return func(ctx context.Context) (func(context.Context) error, error) {
		l, err := replock.New(s, replock.Options{})
		if err != nil {
			return nil, err
		}
		lock := l.Shared
		if mode == replock.Exclusive {
			lock = l.Exclusive
		}
		k, err := lock(ctx, "bench")
		if err != nil {
			return nil, err
		}
		return k.Release, nil
	}
}

// theirs is the original protocol.
func theirs(s store.Store, mode replock.Mode) take {
	return func(ctx context.Context) (func(context.Context) error, error) {
		l := &cloudsticlock.Locker{Store: s, Clock: clock.System{}, Holder: "bench (pid 1)"}
		lock := l.Shared
		if mode == replock.Exclusive {
			lock = l.Exclusive
		}
		k, err := lock(ctx, "bench")
		if err != nil {
			return nil, err
		}
		return k.Release, nil
	}
}

// measure adds one acquire and release to a row. If refused isn't nil, the acquire must fail
// with an error that refused accepts, and there is no release.
func (r *row) measure(ctx context.Context, p *proxy.Proxy, t take, refused func(error) bool) error {
	passed(p)
	start := time.Now()
	release, err := t(ctx)
	took := time.Since(start)
	switch {
	case err == nil && refused != nil:
		return fmt.Errorf("%s: the lock was granted", r.name)
	case err != nil && (refused == nil || !refused(err)):
		return fmt.Errorf("%s: %w", r.name, err)
	}
	r.n++
	r.count(0, passed(p))
	if err != nil {
		r.took = append(r.took, took)
		return nil
	}
	start = time.Now()
	if err := release(ctx); err != nil {
		return fmt.Errorf("%s: %w", r.name, err)
	}
	r.lasted(took, time.Since(start))
	r.count(1, passed(p))
	return nil
}

// lasted notes the times of an acquire and of its release.
func (r *row) lasted(took, released time.Duration) {
	r.took, r.released, r.both = append(r.took, took), append(r.released, released), append(r.both, took+released)
}

// count notes the requests of an acquire, 0, or a release, 1.
func (r *row) count(which int, l proxy.Log) {
	r.trips[which] = append(r.trips[which], l.Trips())
	r.requests[which] = append(r.requests[which], len(l))
}

// passed returns the requests that have passed the proxy since the last call.
func passed(p *proxy.Proxy) proxy.Log {
	p.Settle()
	return p.Take()
}
