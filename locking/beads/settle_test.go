//go:build unix

package beads

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/repolock/repolock/internal/test/assert"
	"github.com/repolock/repolock/internal/test/beadsdaemon"
	"github.com/repolock/repolock/internal/test/leapclock"
	"github.com/repolock/repolock/internal/test/lockcheck"
	"github.com/repolock/repolock/internal/test/rounds"
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
				lockcheck.Held(t, client(t, dir, Options{}), Key)
			})
			began := time.Now()
			h := lockcheck.Acquire(t, b, Key, ttl)
			if got := time.Since(began); got != want {
				t.Errorf("settle %v: took %v, want %v", settle, got, want)
			}
			lockcheck.Release(t, b, h)
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
			assert.That(t, d.Cycle(dir), "the first cycle skipped the database")
			for range 5 {
				time.Sleep(time.Second)
				assert.That(t, !d.Cycle(dir), "a cycle didn't skip the database")
			}
		}()
		synctest.Wait()
		if !running.Load() {
			t.Fatal("no cycle runs")
		}
		h := lockcheck.Acquire(t, b, Key, ttl)
		assert.That(t, !running.Load(), "the cycle still runs")
		<-ends
		lockcheck.Release(t, b, h)
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
			h := lockcheck.Acquire(t, b, Key, ttl)
			lockcheck.Release(t, b, h)
		})
	})
	settling(t, 5*time.Second, func(t *testing.T, b *Backend, dir string) {
		bodies := make(chan string, 1)
		time.AfterFunc(time.Second, func() { bodies <- put(t, dir, func(map[string]any) {}) })
		took(t, time.Second, func() {
			lockcheck.Held(t, b, Key)
		})
		assert.That(t, lockText(t, dir) == <-bodies, "the other tool's lock was changed")
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

// TestStaleRace: two of ours and two daemons meet a stale lock, many times. Never do both of ours
// have the lock, the lock stays, and the daemon skips the database then.
func TestStaleRace(t *testing.T) {
	dir := t.TempDir()
	dead := ended(t)
	acquired := 0
	for round := range rounds.Fewer(500, 50) {
		put(t, dir, func(m map[string]any) { m["pid"] = dead })
		begin := make(chan struct{})
		var all, daemons sync.WaitGroup
		for range 2 {
			daemons.Go(func() {
				<-begin
				if _, _, err := (beadsdaemon.Daemon{}).ShouldSkipDatabase(dir); err != nil {
					t.Errorf("the daemon: %v", err)
				}
			})
		}
		var won [2]locking.Handle
		var ours [2]*Backend
		for i := range ours {
			ours[i] = client(t, dir, Options{Clock: &leap{until: daemons.Wait}})
			all.Go(func() {
				<-begin
				h, ok, err := ours[i].TryLock(t.Context(), Key, ttl)
				assert.Is(t, err, nil, "round %d", round)
				if ok {
					won[i] = h
				}
			})
		}
		close(begin)
		all.Wait()
		daemons.Wait()
		var zero locking.Handle
		if won[0] != zero && won[1] != zero {
			t.Fatalf("round %d: both hold the lock", round)
		}
		for i, h := range won {
			if h == zero {
				continue
			}
			acquired++
			assert.Is(t, ours[i].Renew(t.Context(), h), nil, "round %d: the daemon has removed a held lock", round)
			skips(t, dir, "repolock")
			assert.Is(t, ours[i].Release(t.Context(), h), nil, "round %d: release", round)
		}
	}
	assert.That(t, acquired != 0, "no round had a holder")
}
