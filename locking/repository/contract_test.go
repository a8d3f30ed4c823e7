package repository_test

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"testing"
	"testing/synctest"
	"time"

	"github.com/repolock/repolock/internal/identity"
	"github.com/repolock/repolock/internal/test/assert"
	"github.com/repolock/repolock/internal/test/hookstore"
	"github.com/repolock/repolock/internal/test/leapclock"
	"github.com/repolock/repolock/internal/test/lockcheck"
	"github.com/repolock/repolock/internal/test/rounds"
	"github.com/repolock/repolock/locking"
	"github.com/repolock/repolock/locking/lockingtest"
	"github.com/repolock/repolock/locking/repository"
	"github.com/repolock/repolock/replock"
	"github.com/repolock/repolock/store"
	"github.com/repolock/repolock/store/dir"
	"github.com/repolock/repolock/store/mem"
)

const (
	key = "nightly"
	ttl = 10 * time.Second
)

// client is a backend with a clock and a connection of its own.
type client struct {
	*testing.T
	*repository.Backend
	clock *leapclock.Clock
	store *hookstore.Store
}

func newClient(t *testing.T, s store.Store, opts repository.Options) *client {
	t.Helper()
	c := &client{T: t, clock: leapclock.New(), store: &hookstore.Store{Store: s}}
	opts.Clock = c.clock
	b, err := repository.New(c.store, opts)
	assert.OK(t, err)
	c.Backend = b
	return c
}

// in runs a test in a bubble, with two clients of one store.
func in(t *testing.T, f func(t *testing.T, a, b *client)) {
	t.Helper()
	on(t, mem.Options{}, f)
}

// on is in with another store.
func on(t *testing.T, opts mem.Options, f func(t *testing.T, a, b *client)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := mem.New(opts)
		f(t, newClient(t, s, repository.Options{}), newClient(t, s, repository.Options{}))
	})
}

// free acquires the lock and releases it.
func (c *client) free() {
	c.Helper()
	lockcheck.Release(c.T, c, lockcheck.Acquire(c.T, c, key, ttl))
}

// cut cuts the connection to the store, or, with nil, mends it.
func (c *client) cut(err error) {
	if err == nil {
		c.store.Before(nil)
		return
	}
	c.store.Before(func(context.Context, hookstore.Request) error { return err })
}

var errCut = &store.Error{Op: "put", Err: store.Unreachable(errors.New("no route to host"))}

// crashed acquires the lock, and leaves it in the store.
func (c *client) crashed() {
	c.Helper()
	h := lockcheck.Acquire(c.T, c, key, ttl)
	c.cut(errCut)
	time.Sleep(2 * ttl)
	_ = c.Release(c.T.Context(), h)
}

// takeAway deletes all objects of a lock, as a person does by hand.
func takeAway(t *testing.T, s store.Store, key string) {
	t.Helper()
	page, err := s.List(t.Context(), "index/locks/"+key+"/", "")
	if err != nil || len(page.Objects) == 0 || page.Next != "" {
		t.Fatalf("%d objects of %q, next %q, %v", len(page.Objects), key, page.Next, err)
	}
	for _, o := range page.Objects {
		assert.OK(t, s.Delete(t.Context(), o.Key))
	}
}

func config(s store.Store) lockingtest.Config {
	return lockingtest.Config{
		Lose:   func(t *testing.T, key string) { t.Helper(); takeAway(t, s, key) },
		Notice: replock.DefaultLook,
		New: func(t *testing.T) locking.Backend {
			b, err := repository.New(s, repository.Options{Clock: leapclock.New()})
			assert.OK(t, err)
			return b
		},
		Keys:    []string{"a", "b", "weekly-2_x"},
		BadKeys: []string{"", "A", "a/b", "../a", "-a", "a ", "a\x00", "é"},
		Expires: true, TTL: ttl, Bubble: true,
		Limit: time.Hour, // acquirers that meet pause for seconds
	}
}

// TestConformance: the backend keeps the contract on stores with good and poor abilities, and leaves no lock there.
func TestConformance(t *testing.T) {
	for name, c := range map[string]struct {
		store  store.Store
		rounds int
	}{
		"kept":    {mem.New(mem.Options{}), rounds.Fewer(1000, 100)},
		"claimed": {mem.New(mem.Options{IfAbsent: mem.Claimed, IfMatch: mem.Claimed, Precision: time.Second}), rounds.Fewer(100, 20)},
		"ignored": {mem.New(mem.Options{IfAbsent: mem.Ignored, IfMatch: mem.Ignored, NoTime: true}), rounds.Fewer(100, 20)},
		"lacked":  {mem.New(mem.Options{IfAbsent: mem.Lacked, IfMatch: mem.Lacked}), rounds.Fewer(100, 20)},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			conf := config(c.store)
			conf.Rounds = c.rounds
			lockingtest.Run(t, conf)
			if page, err := c.store.List(t.Context(), "", ""); len(page.Objects) > 0 || err != nil {
				t.Errorf("left: %v, %v", page.Objects, err)
			}
		})
	}
}

// TestCosts: the requests that docs/evidence/locking.md names.
func TestCosts(t *testing.T) {
	in(t, func(t *testing.T, a, _ *client) {
		costs := func(what string, want int) {
			t.Helper()
			if n, by := a.store.Count(); n != want {
				t.Errorf("%s: %d requests, want %d: %v", what, n, want, by)
			}
		}
		h := lockcheck.Acquire(t, a, key, ttl)
		costs("acquire", 3)
		lockcheck.Renew(t, a, h)
		costs("renew", 2)
		lockcheck.Release(t, a, h)
		costs("release", 3)
	})
}

// serveEnv names the directory whose locks this process is to serve.
const serveEnv = "REPOLOCK_TEST_SERVE"

func TestMain(m *testing.M) {
	path := os.Getenv(serveEnv)
	if path == "" {
		os.Exit(m.Run())
	}
	b, err := onDisk(context.Background(), path)
	if err == nil {
		err = lockingtest.Serve(b, os.Stdin, os.Stdout)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func onDisk(ctx context.Context, path string) (*repository.Backend, error) {
	s, err := dir.Open(ctx, path)
	if err != nil {
		return nil, err
	}
	return repository.New(s, repository.Options{})
}

// process starts another process with a client, which the test can kill.
func process(t *testing.T, path string) (locking.Backend, *exec.Cmd) {
	t.Helper()
	exe, err := os.Executable()
	assert.OK(t, err)
	cmd := exec.Command(exe)
	cmd.Env = append(os.Environ(), serveEnv+"="+path)
	cmd.Stderr = os.Stderr
	return lockingtest.Start(t, cmd), cmd
}

// TestTwoProcesses: the backend keeps the contract between processes, by the machine's clock.
func TestTwoProcesses(t *testing.T) {
	rounds.Long(t, "it waits out seven ttls of 10 s by the machine's clock")
	t.Parallel()
	path := t.TempDir()
	lockingtest.Run(t, lockingtest.Config{
		New: func(t *testing.T) locking.Backend {
			b, err := onDisk(t.Context(), path)
			assert.OK(t, err)
			return b
		},
		Other: func(t *testing.T) locking.Backend {
			b, _ := process(t, path)
			return b
		},
		Lose: func(t *testing.T, key string) {
			t.Helper()
			s, err := dir.Open(t.Context(), path)
			assert.OK(t, err)
			takeAway(t, s, key)
		},
		Notice:  replock.DefaultLook,
		Expires: true, TTL: ttl,
		Rounds: 10, // two acquirers that meet pause for a second
		Limit:  5 * time.Minute,
	})
}

// TestKilled: the lock of another process excludes this one's. Once that process was killed, the lock is free one
// ttl after its last refresh, and not before. The short suite doesn't wait for that.
func TestKilled(t *testing.T) {
	t.Parallel()
	path := t.TempDir()
	holder, cmd := process(t, path)
	began := time.Now()
	lockcheck.Acquire(t, holder, key, ttl)
	b, err := onDisk(t.Context(), path)
	assert.OK(t, err)
	lockcheck.Held(t, b, key)
	assert.OK(t, cmd.Process.Kill())
	killed := time.Now()
	if testing.Short() {
		if _, ok, err := b.TryLock(t.Context(), key, ttl); err != nil || ok && time.Since(began) < ttl {
			t.Errorf("free %v after it was acquired: %v", time.Since(began), err)
		}
		return
	}
	for {
		h, ok, err := b.TryLock(t.Context(), key, ttl)
		assert.OK(t, err)
		if ok {
			if held := time.Since(began); held < ttl {
				t.Errorf("free %v after it was acquired", held)
			}
			t.Logf("free %v after the kill, with a ttl of %v", time.Since(killed).Round(time.Millisecond), ttl)
			assert.Is(t, b.Release(t.Context(), h), nil)
			return
		}
		time.Sleep(100 * time.Millisecond)
	}
}

// reporter is a clock with an identity that replock.New takes.
type reporter struct{ *leapclock.Clock }

func (reporter) Process() (io.Reader, identity.Process) {
	return rand.Reader, identity.Process{Hostname: "db1 (pid 1)", PID: 4711}
}

// TestInspect: Inspect returns what the body says.
func TestInspect(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := mem.New(mem.Options{})
		a, err := repository.New(s, repository.Options{Operation: "report", Clock: reporter{leapclock.New()}})
		assert.OK(t, err)
		acquired := time.Now()
		h := lockcheck.Acquire(t, a, key, ttl)
		time.Sleep(3 * time.Second)
		lockcheck.Renew(t, a, h)
		got := lockcheck.Seen(t, a, key)
		if !got.Acquired.Equal(acquired) || !got.Renewed.Equal(acquired.Add(3*time.Second)) || got.Revision == "" {
			t.Errorf("%+v", got)
		}
		got.Acquired, got.Renewed, got.Revision = time.Time{}, time.Time{}, ""
		assert.Equal(t, *got, locking.Info{Key: key, Holder: "report", Host: "db1 (pid 1)", PID: 4711, TTL: ttl})
		lockcheck.Release(t, a, h)
	})
}

// TestStale: a lock is stale when its ttl is over, and only then Break removes it with stale.
func TestStale(t *testing.T) {
	in(t, func(t *testing.T, a, b *client) {
		h := lockcheck.Acquire(t, a, key, ttl)
		a.cut(errCut) // a has crashed
		for _, stale := range []bool{false, true} {
			seen := lockcheck.Seen(t, b, key)
			assert.That(t, seen.Stale == stale, "%+v, want stale %v", seen, stale)
			lockcheck.Breaks(t, b, seen, true, stale)
			time.Sleep(ttl + 5*time.Second)
		}
		lockcheck.Free(t, b, key)
		a.cut(nil)
		_ = a.Release(t.Context(), h)
	})
}

// TestUnreadable: a body that can't be read is a lock until it is broken, and not by stale.
func TestUnreadable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := mem.New(mem.Options{})
		b := newClient(t, s, repository.Options{})
		put := func(body string) {
			assert.OK(t, assert.Err(s.Put(t.Context(), "index/locks/nightly/lock.exclusive", []byte(body), store.PutOptions{})))
		}
		put("?")
		lockcheck.Held(t, b, key)
		seen := lockcheck.Seen(t, b, key)
		assert.That(t, seen.Trouble != "" && !seen.Stale && seen.Revision != "", "%+v", seen)
		lockcheck.Breaks(t, b, seen, true, false)
		put("!") // by another client, within the precision of the store's clock
		lockcheck.Breaks(t, b, seen, false, false)
		seen = lockcheck.Seen(t, b, key)
		time.Sleep(time.Second)
		put("!") // by a third
		lockcheck.Breaks(t, b, seen, false, false)
		lockcheck.Breaks(t, b, lockcheck.Seen(t, b, key), false, true)
		b.free()
	})
}

// TestWaiter: a waiter is shown, and keeps others out, after the holder alone.
func TestWaiter(t *testing.T) {
	in(t, func(t *testing.T, a, b *client) {
		slow := leapclock.New()
		slow.Step.Store(int64(-time.Minute)) // so that the waiter seems to have come first
		locker, err := replock.New(a.store, replock.Options{Name: key, Clock: slow})
		assert.OK(t, err)
		shows := func(want string) {
			t.Helper()
			assert.Equal(t, lockcheck.Seen(t, b, key).Holder, want)
		}
		h := lockcheck.Acquire(t, a, key, ttl)
		waiter := make(chan *replock.Lock)
		go func() {
			lock, err := locker.Exclusive(t.Context(), "prune", replock.Wait(time.Hour))
			assert.Is(t, err, nil)
			waiter <- lock
		}()
		time.Sleep(3 * time.Second)
		lockcheck.Renew(t, a, h)
		shows("lock")
		lockcheck.Release(t, a, h)
		shows("prune (waiting)")
		lockcheck.Held(t, b, key)
		lock := <-waiter
		shows("prune")
		if lock != nil {
			_ = lock.Release(t.Context())
		}
		b.free()
	})
}
