//go:build unix

package beads

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/repolock/repolock/internal/test/assert"
	"github.com/repolock/repolock/internal/test/beadsdaemon"
	"github.com/repolock/repolock/internal/test/leapclock"
	"github.com/repolock/repolock/internal/test/lockcheck"
	"github.com/repolock/repolock/locking"
)

// bubble runs a test in a bubble, with a client.
func bubble(t *testing.T, test func(t *testing.T, b *Backend, dir string)) {
	t.Helper()
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) { test(t, client(t, dir, Options{Clock: leapclock.New()}), dir) })
}

// TestSettle: TryLock has the lock for 100 ms before it returns. If its context ends, it gives the lock
// back at once. If another tool removes the file, TryLock begins again; if another tool locks, the lock is
// held.
func TestSettle(t *testing.T) {
	const half = settling / 2
	for name, c := range map[string]struct {
		happens func(t *testing.T, dir string, cancel func())
		took    time.Duration
		ok      bool
	}{
		"nothing": {func(t *testing.T, dir string, _ func()) {
			lockcheck.Held(t, client(t, dir, Options{}), Key)
		}, settling, true},
		"the context ends": {func(_ *testing.T, _ string, cancel func()) { cancel() }, half, false},
		"removed": {func(_ *testing.T, dir string, _ func()) {
			_ = os.Remove(filepath.Join(dir, Key))
		}, 2 * settling, true},
		"overwritten": {func(t *testing.T, dir string, _ func()) { put(t, dir, func(map[string]any) {}) }, settling, false},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, b *Backend, dir string) {
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				theirs := make(chan string, 1)
				time.AfterFunc(half, func() {
					c.happens(t, dir, cancel)
					body, _ := os.ReadFile(filepath.Join(dir, Key))
					theirs <- string(body)
				})
				began := time.Now()
				h, ok, err := b.TryLock(ctx, Key, ttl)
				assert.That(t, ok == c.ok && time.Since(began) == c.took, "acquired %v, %v after %v", ok, err, time.Since(began))
				switch {
				case ok:
					lockcheck.Release(t, b, h)
				case ctx.Err() == nil:
					assert.That(t, err == nil && lockText(t, dir) == <-theirs, "the other tool's lock was changed: %v", err)
					return
				default:
					assert.That(t, errors.Is(err, context.Canceled) && strings.Contains(err.Error(), "nothing is held"), "%v", err)
				}
				left(t, dir)
			})
		})
	}
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

// TestDaemonRemovesTheNewLock: a daemon has read a stale lock, and removes the new lock that has
// taken its place, whether TryLock or another program has removed the stale one. TryLock
// notices, and holds a lock in the end.
func TestDaemonRemovesTheNewLock(t *testing.T) {
	for name, also := range map[string]func(t *testing.T, dir string){
		"replaced by TryLock": func(*testing.T, string) {},
		"removed before": func(t *testing.T, dir string) {
			assert.OK(t, client(t, dir, Options{}).Cleanup(t.Context()))
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			put(t, dir, func(m map[string]any) { m["pid"] = ended(t) })
			looked, created, removed := make(chan struct{}), make(chan struct{}), make(chan struct{})
			go func() {
				defer close(removed)
				d := beadsdaemon.Daemon{Before: func() {
					close(looked)
					<-created
				}}
				if skip, _, err := d.ShouldSkipDatabase(dir); skip || err != nil {
					t.Errorf("the daemon: %v, %v", skip, err)
				}
			}()
			<-looked
			also(t, dir)
			var once sync.Once
			b := client(t, dir, Options{Clock: &leap{until: func() {
				once.Do(func() { close(created) })
				<-removed
			}}})
			h := lockcheck.Acquire(t, b, Key, ttl)
			lockcheck.Renew(t, b, h)
		})
	}
}
