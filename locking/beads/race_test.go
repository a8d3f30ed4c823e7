//go:build unix

package beads_test

import (
	"sync"
	"testing"
	"time"

	"github.com/repolock/repolock/internal/clock"
	"github.com/repolock/repolock/locking"
	"github.com/repolock/repolock/locking/beads"
)

// settled is a clock whose waits of 50 ms and more last until a channel is closed: so a test's
// daemon is in time, however slow the machine is.
type settled struct {
	clock.System
	leap *time.Duration
	done <-chan struct{}
	// waits, if it is set, is called when such a wait begins.
	waits func()
}

func (c settled) Elapsed() time.Duration { return *c.leap }

func (c settled) After(d time.Duration) <-chan time.Time {
	if d < 50*time.Millisecond {
		return c.System.After(d)
	}
	if c.waits != nil {
		c.waits()
	}
	<-c.done
	*c.leap += d
	ready := make(chan time.Time, 1)
	ready <- c.Now()
	return ready
}

// TestDaemonRemovesTheNewLock: a daemon has read a stale lock, TryLock replaces it, and the
// daemon removes the new lock. TryLock notices, and holds a lock in the end.
func TestDaemonRemovesTheNewLock(t *testing.T) {
	dir := t.TempDir()
	put(t, dir, func(m map[string]any) { m["pid"] = ended(t) })
	looked, replaced, removed := make(chan struct{}), make(chan struct{}), make(chan struct{})
	go func() {
		defer close(removed)
		d := daemon{func() {
			close(looked)
			<-replaced
		}}
		if skip, _, err := d.ShouldSkipDatabase(dir); skip || err != nil {
			t.Errorf("the daemon: %v, %v", skip, err)
		}
	}()
	<-looked
	c := settled{leap: new(time.Duration), done: removed, waits: func() { close(replaced) }}
	b := client(t, dir, beads.Options{Clock: c})
	h := acquire(t, b)
	if err := b.Renew(t.Context(), h); err != nil {
		t.Errorf("renew: %v", err)
	}
}

// TestStaleRace: two of ours and the daemon meet a stale lock, 500 times. Never do both of ours
// have the lock, the lock stays, and the daemon skips the database then.
func TestStaleRace(t *testing.T) {
	dir := t.TempDir()
	dead := ended(t)
	acquired := 0
	for round := range 500 {
		put(t, dir, func(m map[string]any) { m["pid"] = dead })
		passed := make(chan struct{})
		var all sync.WaitGroup
		begin := make(chan struct{})
		all.Go(func() {
			defer close(passed)
			<-begin
			if _, _, err := (daemon{}).ShouldSkipDatabase(dir); err != nil {
				t.Errorf("the daemon: %v", err)
			}
		})
		var won [2]locking.Handle
		var ours [2]*beads.Backend
		for i := range ours {
			ours[i] = client(t, dir, beads.Options{Clock: settled{leap: new(time.Duration), done: passed}})
			all.Go(func() {
				<-begin
				h, ok, err := ours[i].TryLock(t.Context(), beads.Key, ttl)
				if err != nil {
					t.Errorf("round %d: %v", round, err)
				}
				if ok {
					won[i] = h
				}
			})
		}
		close(begin)
		all.Wait()
		var zero locking.Handle
		if won[0] != zero && won[1] != zero {
			t.Fatalf("round %d: both hold the lock", round)
		}
		for i, h := range won {
			if h == zero {
				continue
			}
			acquired++
			if err := ours[i].Renew(t.Context(), h); err != nil {
				t.Errorf("round %d: the daemon has removed a held lock: %v", round, err)
			}
			if skip, _, err := (daemon{}).ShouldSkipDatabase(dir); !skip || err != nil {
				t.Errorf("round %d: the daemon doesn't skip: %v, %v", round, skip, err)
			}
			if err := ours[i].Release(t.Context(), h); err != nil {
				t.Errorf("round %d: release: %v", round, err)
			}
		}
	}
	if acquired == 0 {
		t.Error("no round had a holder")
	}
}
