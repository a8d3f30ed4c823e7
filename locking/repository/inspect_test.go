package repository_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/repolock/repolock/locking"
	"github.com/repolock/repolock/locking/repository"
	"github.com/repolock/repolock/replock"
	"github.com/repolock/repolock/store"
	"github.com/repolock/repolock/store/mem"
)

// TestInspect: Inspect returns what the body says.
func TestInspect(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := mem.New(mem.Options{})
		self := &replock.Process{Hostname: "db1 (pid 1)", PID: 4711}
		a := newClient(t, s, repository.Options{Operation: "report", Self: self})
		acquired := time.Now()
		h := a.acquire()
		time.Sleep(3 * time.Second)
		a.renew(h)
		got, err := a.Inspect(t.Context(), key)
		if err != nil || got == nil || !got.Acquired.Equal(acquired) || !got.Renewed.Equal(acquired.Add(3*time.Second)) || got.Revision == "" {
			t.Fatalf("%+v, %v", got, err)
		}
		got.Acquired, got.Renewed, got.Revision = time.Time{}, time.Time{}, ""
		if want := (locking.Info{Key: key, Holder: "report", Host: "db1 (pid 1)", PID: 4711, TTL: ttl}); *got != want {
			t.Errorf("%+v, want %+v", *got, want)
		}
		a.release(h)
	})
}

// TestStale: a lock is stale when its ttl is over, and only then Break removes it with stale.
func TestStale(t *testing.T) {
	in(t, func(t *testing.T, a, b *client) {
		h := a.acquire()
		a.cut(errCut) // a has crashed
		breaks := func(stale bool) bool {
			t.Helper()
			seen, err := b.Inspect(t.Context(), key)
			if err != nil || seen == nil || seen.Stale != stale {
				t.Fatalf("%+v, %v, want stale %v", seen, err, stale)
			}
			ok, err := b.Break(t.Context(), seen, true)
			if err != nil {
				t.Error(err)
			}
			return ok
		}
		if breaks(false) {
			t.Error("a live lock was broken")
		}
		time.Sleep(ttl + 5*time.Second)
		if !breaks(true) {
			t.Error("a stale lock wasn't broken")
		}
		if seen, err := b.Inspect(t.Context(), key); seen != nil || err != nil {
			t.Errorf("left: %+v, %v", seen, err)
		}
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
			if _, err := s.Put(t.Context(), "index/locks/nightly/lock.exclusive", []byte(body), store.PutOptions{}); err != nil {
				t.Fatal(err)
			}
		}
		put("?")
		b.refused()
		seen, err := b.Inspect(t.Context(), key)
		if err != nil || seen == nil || seen.Trouble == "" || seen.Stale || seen.Revision == "" {
			t.Fatalf("%+v, %v", seen, err)
		}
		breaks := func(stale, want bool) {
			t.Helper()
			if ok, err := b.Break(t.Context(), seen, stale); ok != want || err != nil {
				t.Errorf("break (stale %v): %v, %v", stale, ok, err)
			}
		}
		breaks(true, false)
		see := func() {
			t.Helper()
			if seen, err = b.Inspect(t.Context(), key); err != nil || seen == nil {
				t.Fatal(seen, err)
			}
		}
		put("!") // by another client, within the precision of the store's clock
		breaks(false, false)
		see()
		time.Sleep(time.Second)
		put("!") // by a third
		breaks(false, false)
		see()
		breaks(false, true)
		b.free()
	})
}

// TestWaiter: a waiter is shown, and keeps others out, after the holder alone.
func TestWaiter(t *testing.T) {
	in(t, func(t *testing.T, a, b *client) {
		slow := newBubble()
		slow.leap.Store(int64(-time.Minute)) // so that the waiter seems to have come first
		locker, err := replock.New(a.store, replock.Options{Name: key, Clock: slow})
		if err != nil {
			t.Fatal(err)
		}
		shows := func(want string) {
			t.Helper()
			if seen, err := b.Inspect(t.Context(), key); err != nil || seen == nil || seen.Holder != want {
				t.Errorf("%+v, %v, want %q", seen, err, want)
			}
		}
		h := a.acquire()
		waiter := make(chan *replock.Lock)
		go func() {
			lock, err := locker.Exclusive(t.Context(), "prune", replock.Wait(time.Hour))
			if err != nil {
				t.Error(err)
			}
			waiter <- lock
		}()
		time.Sleep(3 * time.Second)
		a.renew(h)
		shows("lock")
		a.release(h)
		shows("prune (waiting)")
		b.refused()
		lock := <-waiter
		shows("prune")
		if lock != nil {
			_ = lock.Release(t.Context())
		}
		b.free()
	})
}
