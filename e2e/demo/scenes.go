//go:build linux

package main

import (
	"context"
	"fmt"
	"path/filepath"
	"time"
)

// demo is two terminals: a backup, a prune that is refused and then waits, and a backup that is
// killed.
func demo(ctx context.Context, p *place) ([]byte, error) {
	web, err := p.terminal(ctx, "web", 7)
	if err != nil {
		return nil, err
	}
	defer web.close()
	store, err := p.terminal(ctx, "store", 32)
	if err != nil {
		return nil, err
	}
	defer store.close()
	const prune = "-- rclone delete remote:old"
	for _, step := range []func() error{
		func() error {
			return web.enter("repolock backup -- rclone copy " + limit + " documents remote:documents")
		},
		func() error { return p.holds(ctx) },
		func() error { return store.run(ctx, "repolock status") },
		func() error { return store.run(ctx, "repolock prune "+prune+"; echo \"exit code $?\"") },
		func() error { return store.shows(ctx, "exit code 75") },
		func() error { return store.enter("repolock prune --wait 15m " + prune + " && echo pruned") },
		func() error { return store.shows(ctx, "waiting ") },
		func() error { return web.ends(ctx) },
		func() error { return store.ends(ctx) },
		func() error { return store.shows(ctx, "pruned"+prompt(store.host)) },
		func() error {
			return web.enter("repolock backup --ttl 10s -- rclone copy " + limit + " mail remote:mail")
		},
		func() error { return p.holds(ctx) },
		web.killed,
		func() error { return web.shows(ctx, "Killed") },
		func() error { return store.enter("repolock prune --wait 15m " + prune + " && echo free") },
		func() error { return store.shows(ctx, "waiting ") },
		func() error { return store.shows(ctx, "free"+prompt(store.host)) },
	} {
		if err := step(); err != nil {
			return nil, err
		}
	}
	return animation(web, store)
}

// holds waits until there is a shared lock.
func (p *place) holds(ctx context.Context) error {
	return waitFor(ctx, "the backup's lock", func() bool {
		locks, err := filepath.Glob(filepath.Join(p.dir, "remote/index/lock.shared/*"))
		return err == nil && len(locks) > 0
	})
}

func waitFor(ctx context.Context, what string, is func() bool) error {
	for end := time.Now().Add(hang); !is(); time.Sleep(20 * time.Millisecond) {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if time.Now().After(end) {
			return fmt.Errorf("waited too long for %s", what)
		}
	}
	return nil
}
