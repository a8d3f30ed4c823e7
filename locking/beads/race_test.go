//go:build unix

package beads

import (
	"sync"
	"testing"

	"github.com/repolock/repolock/internal/test/beadsdaemon"
	"github.com/repolock/repolock/internal/test/rounds"
	"github.com/repolock/repolock/locking"
)

// TestDaemonRemovesTheNewLock: a daemon has read a stale lock, and removes the new lock that has
// taken its place, whether TryLock or another program has removed the stale one. TryLock
// notices, and holds a lock in the end.
func TestDaemonRemovesTheNewLock(t *testing.T) {
	for name, also := range map[string]func(t *testing.T, dir string){
		"replaced by TryLock": func(*testing.T, string) {},
		"removed before": func(t *testing.T, dir string) {
			if err := client(t, dir, Options{}).Cleanup(t.Context()); err != nil {
				t.Fatal(err)
			}
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
			h := acquire(t, b)
			renew(t, b, h)
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
			if err := ours[i].Renew(t.Context(), h); err != nil {
				t.Errorf("round %d: the daemon has removed a held lock: %v", round, err)
			}
			skips(t, dir, "repolock")
			if err := ours[i].Release(t.Context(), h); err != nil {
				t.Errorf("round %d: release: %v", round, err)
			}
		}
	}
	if acquired == 0 {
		t.Error("no round had a holder")
	}
}
