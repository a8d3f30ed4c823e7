package beads

import (
	"context"
	"errors"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/repolock/repolock/internal/test/rounds"
	"github.com/repolock/repolock/locking"
	"github.com/repolock/repolock/locking/lockingtest"
)

// TestLinkReplacesNothing: a lock that another tool creates after TryLock has looked stays, and
// TryLock leaves no file beside it.
func TestLinkReplacesNothing(t *testing.T) {
	b, _ := seen(t)
	if mine, err := b.link(); mine != nil || err != nil {
		t.Errorf("%+v, %v", mine, err)
	}
	if body, _ := os.ReadFile(b.path); string(body) != "old" || len(files(t, b)) != 1 {
		t.Errorf("the lock is %q now, beside %v", body, files(t, b))
	}
}

// TestConformanceWithoutFlock: where the directory has no flock, the link alone excludes.
func TestConformanceWithoutFlock(t *testing.T) {
	noFlock(t)
	dir := t.TempDir()
	lockingtest.Run(t, lockingtest.Config{
		Rounds: rounds.Fewer(1000, 100),
		New: func(t *testing.T) locking.Backend {
			b, err := New(dir, Options{Clock: new(Leap)})
			if err != nil {
				t.Fatal(err)
			}
			return b
		},
		Keys: []string{Key}, TTL: time.Millisecond,
	})
}

// TestStuckFlock: if another process keeps the flock for ever, TryLock gives its file back all
// the same, and Release returns an error and can be called again.
func TestStuckFlock(t *testing.T) {
	real := tryFlock
	t.Cleanup(func() { tryFlock = real })
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		var stuck atomic.Bool
		tryFlock = func(f *os.File) (bool, error) { return !stuck.Load(), nil }
		b, err := New(dir, Options{Clock: bubble{time.Now()}, Settle: time.Minute})
		if err != nil {
			t.Fatal(err)
		}
		h, ok, err := b.TryLock(t.Context(), Key, 1)
		if !ok || err != nil {
			t.Fatal(ok, err)
		}
		stuck.Store(true)
		err = b.Release(t.Context(), h)
		if err == nil || errors.Is(err, locking.ErrLost) || !strings.Contains(err.Error(), "flock") {
			t.Errorf("release: %v", err)
		}
		stuck.Store(false)
		if err := b.Release(t.Context(), h); err != nil {
			t.Errorf("release again: %v", err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		time.AfterFunc(time.Millisecond, func() { stuck.Store(true) })
		if _, ok, err := b.TryLock(ctx, Key, 1); ok || !errors.Is(err, context.DeadlineExceeded) || len(files(t, b)) > 0 {
			t.Errorf("acquired %v, %v, left %v", ok, err, files(t, b))
		}
	})
}

func noFlock(t *testing.T) {
	real := tryFlock
	tryFlock = func(*os.File) (bool, error) { return false, errors.ErrUnsupported }
	t.Cleanup(func() { tryFlock = real })
}
