package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/repolock/repolock/internal/test/hookstore"
	"github.com/repolock/repolock/replock"
	"github.com/repolock/repolock/store"
	"github.com/repolock/repolock/store/open"
)

// repository is a directory with packs 0 to n-1, of which the snapshot needs pack 0.
func repository(t *testing.T, n int) (string, store.Store) {
	t.Helper()
	dir := t.TempDir()
	st, err := open.Store(t.Context(), dir)
	must(t, err)
	for i := range n {
		_, err := st.Put(t.Context(), fmt.Sprintf("packs/%04d", i), nil, store.PutOptions{})
		must(t, err)
	}
	_, err = st.Put(t.Context(), "snapshots/1", []byte("0000\n"), store.PutOptions{})
	must(t, err)
	return dir, st
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// packs returns how many packs there are.
func packs(t *testing.T, dir string) int {
	t.Helper()
	entries, err := os.ReadDir(filepath.Join(dir, "packs"))
	must(t, err)
	return len(entries)
}

func locker(t *testing.T, st store.Store) *replock.Locker {
	t.Helper()
	l, err := replock.New(st, replock.Options{})
	must(t, err)
	return l
}

// before returns a store that calls f before the nth deletion of a pack.
func before(n int32, st store.Store, f func(context.Context)) store.Store {
	var deletions atomic.Int32
	h := &hookstore.Store{Store: st}
	h.Before(func(ctx context.Context, r hookstore.Request) error {
		if r.Op == "delete" && strings.HasPrefix(r.Key, "packs/") && deletions.Add(1) == n {
			f(ctx)
		}
		return nil
	})
	return h
}

// heard is output that shows each time something was written.
type heard struct {
	bytes.Buffer
	writes chan struct{}
}

func (h *heard) Write(p []byte) (int, error) {
	defer func() { h.writes <- struct{}{} }()
	return h.Buffer.Write(p)
}

// TestPrune: the tool deletes what no snapshot names, and leaves no lock.
func TestPrune(t *testing.T) {
	dir, st := repository(t, 10)
	var out bytes.Buffer
	must(t, run(t.Context(), []string{dir}, &out))
	if n := packs(t, dir); n != 1 || !strings.Contains(out.String(), "9 packs deleted") {
		t.Errorf("%d packs are left: %s", n, &out)
	}
	if held, err := locker(t, st).Status(t.Context()); err != nil || len(held) > 0 {
		t.Errorf("%v, %v", held, err)
	}
}

// TestWait: a prune shows the backup that it waits for, and runs once the backup has ended.
// Without -wait it is refused, and deletes nothing.
func TestWait(t *testing.T) {
	dir, st := repository(t, 10)
	backup, err := locker(t, st).Shared(t.Context(), "backup of home")
	must(t, err)
	if err := run(t.Context(), []string{dir}, &bytes.Buffer{}); !errors.Is(err, replock.ErrHeld) || packs(t, dir) != 10 {
		t.Fatalf("%v; %d packs are left", err, packs(t, dir))
	}
	out := heard{writes: make(chan struct{}, 100)}
	done := make(chan error, 1)
	go func() { done <- run(t.Context(), []string{"-wait", "1h", dir}, &out) }()
	<-out.writes
	must(t, backup.Refresh(t.Context()))
	<-out.writes // the prune has looked again, and has seen the refreshed lock
	if n := packs(t, dir); n != 10 {
		t.Errorf("%d packs are left beside a backup", n)
	}
	must(t, backup.Release(t.Context()))
	must(t, <-done)
	if n := packs(t, dir); n != 1 || !strings.Contains(out.String(), "waiting for") || !strings.Contains(out.String(), "backup of home") {
		t.Errorf("%d packs are left: %s", n, out.String())
	}
}

// TestEnds: a prune whose lock was broken doesn't begin another batch. A request that is under way when the
// lock's loss is seen, or the prune is interrupted, ends with the lock's context. No lock is left.
func TestEnds(t *testing.T) {
	for name, c := range map[string]struct {
		batch  int
		before int32
		event  func(ctx context.Context, st store.Store, interrupt func())
		want   error
		left   int
	}{
		"broken between batches": {10, 10, func(_ context.Context, st store.Store, _ func()) { breakAll(t, st) }, replock.ErrLost, 90},
		"broken within a batch": {100, 5, func(ctx context.Context, st store.Store, _ func()) {
			breakAll(t, st)
			<-ctx.Done() // a slow request
		}, replock.ErrLost, 96},
		"interrupted": {100, 5, func(_ context.Context, _ store.Store, interrupt func()) { interrupt() }, context.Canceled, 95},
	} {
		t.Run(name, func(t *testing.T) {
			dir, st := repository(t, 100)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			h := before(c.before, st, func(ctx context.Context) { c.event(ctx, st, cancel) })
			p := pruner{progress: &bytes.Buffer{}, batch: c.batch, opts: replock.Options{Look: replock.MinLook}}
			deleted, err := p.prune(ctx, h)
			if !errors.Is(err, c.want) || errors.Is(err, replock.ErrLost) && name == "interrupted" || deleted > 100-c.left || packs(t, dir) < c.left {
				t.Errorf("%d are deleted, %d are left: %v", deleted, packs(t, dir), err)
			}
			if held, err := locker(t, st).Status(t.Context()); err != nil || len(held) > 0 {
				t.Errorf("%v, %v", held, err)
			}
		})
	}
}

func breakAll(t *testing.T, st store.Store) {
	if _, err := locker(t, st).Break(context.Background(), replock.BreakOptions{}); err != nil {
		t.Error(err)
	}
}
