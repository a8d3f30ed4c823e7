//go:build unix

package main

import (
	"fmt"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/repolock/repolock/internal/test/fakes3"
	"github.com/repolock/repolock/internal/test/proxy"
	"github.com/repolock/repolock/replock"
	"github.com/repolock/repolock/store"
)

// staleBody is the body of a shared lock whose holder crashed an hour ago.
func staleBody(i int) string {
	at := time.Now().Add(-time.Hour).UTC().Format(time.RFC3339Nano)
	return fmt.Sprintf(`{"operation": "backup", "holder": "m%d (pid 1)", "acquired_at": %q, "expires_at": %q, "is_shared": true, "id": "%032x", "ttl_seconds": 60, "refreshed_at": %q}`, i, at, at, i, at)
}

// TestManyStale: prune says that it removes hundreds of stale locks, and names the first of them.
func TestManyStale(t *testing.T) {
	t.Parallel()
	repo := t.TempDir()
	const n = 300
	for i := range n {
		name := filepath.Join(repo, "index", "lock.shared", fmt.Sprintf("%03d", i))
		write(t, name, staleBody(i))
		hourAgo := time.Now().Add(-time.Hour)
		if err := os.Chtimes(name, hourAgo, hourAgo); err != nil {
			t.Fatal(err)
		}
	}
	out, err := exec.Command("repolock", "-r", repo, "prune", "--", "true").CombinedOutput()
	said := string(out)
	if err != nil || strings.Count(said, "repolock: removing 300 stale locks\n") != 1 || strings.Count(said, "removed a stale lock: ") != maxListed ||
		!strings.Contains(said, "repolock: removed 290 more stale locks\n") || !strings.Contains(said, "repolock: reading many locks, which might be stale\n") {
		t.Errorf("%v: %s", err, said)
	}
	if left := tree(t, filepath.Join(repo, "index")); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
}

// TestManyStaleOnATerminal: a live line shows how many stale locks were removed, at once and then
// each second, and goes with the wait.
func TestManyStaleOnATerminal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out said
		w := newConsole(&reporter{stderr: &out, terminal: func() bool { return true }})
		shows := func(want string) {
			t.Helper()
			synctest.Wait()
			said := out.take()
			if last := said[strings.LastIndex(strings.TrimSuffix(said, "\r"), "\r")+1:]; last != want+"\r" {
				t.Errorf("shown: %q, want %q", said, want)
			}
		}
		w.Event(replock.Event{Kind: replock.EventReading})
		shows("reading many locks, which might be stale")
		w.Event(replock.Event{Kind: replock.EventReading, Done: 700})
		time.Sleep(time.Second)
		shows("reading many locks, which might be stale: 700 done")
		w.Event(replock.Event{Kind: replock.EventReaping, Total: 10_000})
		w.Event(replock.Event{Kind: replock.EventReaping, Done: 2300, Total: 10_000})
		for range 3 {
			time.Sleep(time.Second)
			shows("removing 10000 stale locks: 2300 done")
		}
		w.EndWait()
		if said := out.take(); said != erase {
			t.Errorf("at the end: %q", said)
		}
	})
}

// TestManyStaleOnOddServers: a prune removes all stale locks also where the server can't delete
// many objects in one request, leaves out some of them, or fails at some.
func TestManyStaleOnOddServers(t *testing.T) {
	for name, c := range map[string]struct {
		quirks          proxy.Quirks
		batches, singly int
	}{
		"none":        {proxy.Quirks{}, 1, 0},
		"lacks it":    {proxy.Quirks{NoBatch: true}, 1, 60},
		"leaves out":  {proxy.Quirks{Forgetful: true}, 1, 20},
		"some errors": {proxy.Quirks{Partial: true}, 1, 20},
	} {
		for _, backend := range []string{"s3", "minio"} {
			t.Run(name+"/"+backend, func(t *testing.T) {
				t.Parallel()
				var ago atomic.Int64
				server := fakes3.NewAt("bucket", func() time.Time { return time.Now().Add(-time.Duration(ago.Load())) })
				ago.Store(int64(time.Hour))
				for i := range 60 {
					if _, err := server.Objects().Put(t.Context(), fmt.Sprintf("p/index/lock.shared/%02d", i), []byte(staleBody(i)), store.PutOptions{}); err != nil {
						t.Fatal(err)
					}
				}
				ago.Store(0)
				q := newQuirkyOn(t, httptest.NewServer(server), backend, "", c.quirks)
				q.run(0, "prune", "--", "true")
				batches, singly := 0, 0
				for _, e := range q.Take() {
					if e.Op == "delete all" {
						batches++
					}
					if e.Op == "delete" && strings.Contains(e.Key, "lock.shared/") {
						singly++
					}
				}
				if left, err := store.Keys(t.Context(), server.Objects(), ""); err != nil || len(left) > 0 || batches != c.batches || singly != c.singly {
					t.Errorf("%d requests for many, %d for one; left: %q, %v", batches, singly, left, err)
				}
			})
		}
	}
}
