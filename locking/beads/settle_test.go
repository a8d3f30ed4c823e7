//go:build unix

package beads

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/repolock/repolock/internal/test/beadsdaemon"
	"github.com/repolock/repolock/internal/test/leapclock"
	"github.com/repolock/repolock/locking"
)

// settling runs a test in a bubble, with a client that settles for 5 s, or for 100 ms at least.
func settling(t *testing.T, settle time.Duration, test func(t *testing.T, b *Backend, dir string)) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		test(t, client(t, dir, Options{Clock: leapclock.New(), Settle: settle}), dir)
	})
}

// TestSettle: TryLock returns once the lock was there for the settle time, and for 100 ms in any
// case. It is held meanwhile.
func TestSettle(t *testing.T) {
	const least = 100 * time.Millisecond
	for settle, want := range map[time.Duration]time.Duration{0: least, least / 2: least, 5 * time.Second: 5 * time.Second} {
		settling(t, settle, func(t *testing.T, b *Backend, dir string) {
			time.AfterFunc(want-time.Millisecond, func() {
				held(t, client(t, dir, Options{}), "while it settles")
			})
			began := time.Now()
			h := acquire(t, b)
			if got := time.Since(began); got != want {
				t.Errorf("settle %v: took %v, want %v", settle, got, want)
			}
			release(t, b, h)
		})
	}
}

// TestSettleWaitsForTheCycle: a sync cycle that runs when the lock is created ends before
// TryLock returns, and later ones skip the database.
func TestSettleWaitsForTheCycle(t *testing.T) {
	settling(t, 5*time.Second, func(t *testing.T, b *Backend, dir string) {
		ends := make(chan struct{})
		var running atomic.Bool
		go func() {
			defer close(ends)
			d := beadsdaemon.Daemon{Sync: func() { running.Store(true); time.Sleep(4 * time.Second); running.Store(false) }}
			if !d.Cycle(dir) {
				t.Error("the first cycle skipped the database")
			}
			for range 5 {
				time.Sleep(time.Second)
				if d.Cycle(dir) {
					t.Error("a cycle didn't skip the database")
				}
			}
		}()
		synctest.Wait()
		if !running.Load() {
			t.Fatal("no cycle runs")
		}
		h := acquire(t, b)
		if running.Load() {
			t.Error("the cycle still runs")
		}
		<-ends
		release(t, b, h)
	})
}

// TestSettleEndsWithTheContext: TryLock gives the lock back at once.
func TestSettleEndsWithTheContext(t *testing.T) {
	settling(t, 5*time.Second, func(t *testing.T, b *Backend, dir string) {
		ctx, cancel := context.WithTimeout(t.Context(), 1200*time.Millisecond)
		defer cancel()
		began := time.Now()
		_, ok, err := b.TryLock(ctx, Key, ttl)
		if ok || !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "nothing is held") ||
			strings.Contains(err.Error(), "\n") {
			t.Errorf("acquired %v, %v", ok, err)
		}
		if got := time.Since(began); got != 1200*time.Millisecond {
			t.Errorf("took %v", got)
		}
		left(t, dir)
	})
}

// TestSettleIsDisturbed: TryLock begins anew if another tool removes the file, and returns
// another tool's lock as held.
func TestSettleIsDisturbed(t *testing.T) {
	settling(t, 5*time.Second, func(t *testing.T, b *Backend, dir string) {
		time.AfterFunc(time.Second, func() { _ = os.Remove(filepath.Join(dir, Key)) })
		took(t, 6*time.Second, func() {
			h := acquire(t, b)
			release(t, b, h)
		})
	})
	settling(t, 5*time.Second, func(t *testing.T, b *Backend, dir string) {
		bodies := make(chan string, 1)
		time.AfterFunc(time.Second, func() { bodies <- put(t, dir, func(map[string]any) {}) })
		took(t, time.Second, func() {
			held(t, b, "overwritten")
		})
		if lockText(t, dir) != <-bodies {
			t.Error("the other tool's lock was changed")
		}
	})
}

// TestRemovedEachTime: TryLock doesn't contend for ever with a program that removes the lock.
func TestRemovedEachTime(t *testing.T) {
	dir := t.TempDir()
	b := client(t, dir, Options{Clock: &leap{until: func() { _ = os.Remove(filepath.Join(dir, Key)) }}})
	_, ok, err := b.TryLock(t.Context(), Key, ttl)
	if ok || err == nil || errors.Is(err, locking.ErrLost) || !strings.Contains(err.Error(), "nothing is held") {
		t.Errorf("acquired %v, %v", ok, err)
	}
}

// took checks how long a function takes in the bubble, to a renewal of the look.
func took(t *testing.T, want time.Duration, f func()) {
	t.Helper()
	began := time.Now()
	f()
	if got := time.Since(began); got < want || got > want+600*time.Millisecond {
		t.Errorf("took %v, want %v", got, want)
	}
}
