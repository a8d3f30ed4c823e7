//go:build unix

package torture

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/repolock/repolock/internal/clock"
	"github.com/repolock/repolock/internal/fault"
	"github.com/repolock/repolock/internal/judge"
	"github.com/repolock/repolock/internal/test/assert"
	"github.com/repolock/repolock/internal/test/cloudsticlock"
	"github.com/repolock/repolock/internal/test/plainstore"
	"github.com/repolock/repolock/store"
	"github.com/repolock/repolock/store/dir"
)

// locks are the locks of these tests. This program is its own child: it takes a lock, does the work, and
// exits with the code that the function returns.
var locks = map[string]func(repo string, w Work) int{
	"none":     func(repo string, w Work) int { return work(repo, w) },
	"flock":    withFlock,
	"original": withOriginal,
	"garbage":  func(string, Work) int { fmt.Println("what a child says"); return 0 },
	"panics":   func(repo string, w Work) int { _ = work(repo, w); panic("a bug") },
	"hangs":    func(string, Work) int { time.Sleep(assert.Hang); return 0 },
	"refused":  func(string, Work) int { fmt.Fprintln(os.Stderr, "you may not"); return 77 },
}

func TestMain(m *testing.M) {
	if len(os.Args) == 4 && locks[os.Args[1]] != nil {
		var w Work
		if err := json.Unmarshal([]byte(os.Args[3]), &w); err != nil {
			panic(err)
		}
		os.Exit(locks[os.Args[1]](os.Args[2], w))
	}
	os.Setenv("GORACE", "atexit_sleep_ms=0") // or every program ends a second late
	os.Exit(m.Run())
}

// command returns a client that takes one of the locks.
func command(lock, repo string) func(Work) []string {
	return func(w Work) []string {
		raw, _ := json.Marshal(w)
		return []string{os.Args[0], lock, repo, string(raw)}
	}
}

func open(ctx context.Context, repo string) (store.Store, error) {
	return dir.Open(ctx, repo)
}

func work(repo string, w Work) int {
	objects := func(ctx context.Context) (Objects, error) {
		s, err := open(ctx, repo)
		return plainstore.Objects{Store: s}, err
	}
	if err := w.Do(context.Background(), objects, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// withFlock takes a lock that holds: the kernel's.
func withFlock(repo string, w Work) int {
	f, err := os.Open(repo + ".lock")
	if err != nil {
		panic(err)
	}
	how := syscall.LOCK_SH
	if w.Mode == judge.Exclusive {
		how = syscall.LOCK_EX
	}
	if w.Wait == 0 {
		how |= syscall.LOCK_NB
	}
	if syscall.Flock(int(f.Fd()), how) != nil {
		return fault.ExitHeld
	}
	return work(repo, w)
}

// withOriginal takes the lock as it was first published, which has a hole, in a slow store.
func withOriginal(repo string, w Work) int {
	ctx := context.Background()
	s, err := open(ctx, repo)
	if err != nil {
		panic(err)
	}
	l := cloudsticlock.Locker{Store: slow{s}, Clock: clock.System{}, Holder: w.ID}
	take := l.Shared
	if w.Mode == judge.Exclusive {
		take = l.Exclusive
	}
	k, err := take(ctx, "torture")
	if err != nil {
		return fault.ExitHeld
	}
	defer func() { _ = k.Release(ctx) }()
	return work(repo, w)
}

// slow delays each put by another time, as a network does.
type slow struct{ store.Store }

func (s slow) Put(ctx context.Context, key string, body []byte, opts store.PutOptions) (store.Object, error) {
	time.Sleep(rand.N(150 * time.Millisecond))
	return s.Store.Put(ctx, key, body, opts)
}
