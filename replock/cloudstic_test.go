package replock

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/repolock/repolock/internal/test/cloudsticlock"
	"github.com/repolock/repolock/internal/test/hookstore"
	"github.com/repolock/repolock/store"
	"github.com/repolock/repolock/store/mem"
)

// Each test runs an interleaving with the original protocol, which must let two conflicting
// holders in, and with ours, which must not. docs/holes.md lists the holes of the original
// protocol by their numbers.

// client is a machine that speaks one of the two protocols.
type client struct {
	*machine
	lock func(ctx context.Context, mode Mode) (held, error)
}

// held is a granted lock.
type held interface {
	Held() bool
	Release(context.Context) error
}

type heldByUs struct{ *Lock }

func (h heldByUs) Held() bool { return alive(h.Lock) }

func (w *world) ours() client {
	m := w.machine()
	return client{m, func(ctx context.Context, mode Mode) (held, error) {
		k, err := m.acquire(ctx, mode, mode.String())
		if err != nil {
			return nil, err
		}
		return heldByUs{k}, nil
	}}
}

func (w *world) originals() client {
	m := w.machine()
	l := &cloudsticlock.Locker{Store: m.hooks, Clock: m.clock, Holder: m.self.Holder()}
	return client{m, func(ctx context.Context, mode Mode) (held, error) {
		f := l.Shared
		if mode == Exclusive {
			f = l.Exclusive
		}
		k, err := f(ctx, mode.String())
		if err != nil {
			return nil, err
		}
		return k, nil
	}}
}

// hole runs an interleaving with both protocols. The interleaving returns whether two were in
// at once.
func hole(t *testing.T, run func(t *testing.T, w *world, a, b client) (both bool)) {
	for _, p := range []struct {
		name    string
		clients func(*world) client
		both    bool
	}{
		{"original", (*world).originals, true},
		{"ours", (*world).ours, false},
	} {
		t.Run(p.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, mem.Options{})
				a, b := p.clients(w), p.clients(w)
				if both := run(t, w, a, b); both != p.both {
					t.Errorf("both in at once: %v, want %v", both, p.both)
				}
				// All goroutines end.
				for _, c := range []client{a, b} {
					c.hooks.Before(nil)
					c.hooks.After(nil)
				}
			})
		})
	}
}

// pause holds back a client's first request of a kind until the gate opens, and signals when
// the request has come.
func (c client) pause(op, key string) (came, gate chan struct{}) {
	came, gate = make(chan struct{}), make(chan struct{})
	var once atomic.Bool
	c.hooks.Before(func(_ context.Context, r hookstore.Request) error {
		if r.Op == op && strings.Contains(r.Key, key) && once.CompareAndSwap(false, true) {
			close(came)
			<-gate
		}
		return nil
	})
	return came, gate
}

// end releases the granted locks.
func end(hs ...held) {
	for _, h := range hs {
		if h != nil {
			h.Release(context.Background())
		}
	}
}

func both(a, b held) bool { return a != nil && b != nil && a.Held() && b.Held() }

// TestExclusiveLooksAgainAfterItsPut: an exclusive acquirer looks at the shared locks again after
// its own put.
// Hole 1 of the original protocol: docs/protocol.md.
func TestExclusiveLooksAgainAfterItsPut(t *testing.T) {
	hole(t, func(t *testing.T, w *world, a, b client) bool {
		came, gate := a.pause("put", "lock.exclusive")
		var x held
		done := make(chan struct{})
		go func() { defer close(done); x, _ = a.lock(context.Background(), Exclusive) }()
		<-came
		s, _ := b.lock(t.Context(), Shared)
		close(gate)
		<-done
		defer end(x, s)
		return both(x, s)
	})
}

// TestOneOfTwoExclusivesIsIn: of two exclusive acquirers one is in, although the second looked
// before the first wrote, and wrote after the first verified. Hole 2 of the original protocol:
// docs/protocol.md.
func TestOneOfTwoExclusivesIsIn(t *testing.T) {
	hole(t, func(t *testing.T, w *world, a, b client) bool {
		came, gate := a.pause("put", "lock.exclusive")
		var x held
		done := make(chan struct{})
		go func() { defer close(done); x, _ = a.lock(context.Background(), Exclusive) }()
		<-came
		y, _ := b.lock(t.Context(), Exclusive)
		close(gate)
		<-done
		defer end(x, y)
		return both(x, y)
	})
}

// TestReadErrorIsNoFreeLock: a read that fails doesn't count as "no lock".
// Hole 3 of the original protocol: docs/protocol.md.
func TestReadErrorIsNoFreeLock(t *testing.T) {
	for name, after := range map[string]func(context.Context, hookstore.Request, error) error{
		"503": func(_ context.Context, r hookstore.Request, err error) error {
			if r.Op == "list" || r.Op == "get" && !strings.Contains(r.Key, "exclusive") {
				return errOutage
			}
			return err
		},
		"no permission": func(_ context.Context, r hookstore.Request, err error) error {
			if r.Op == "list" || r.Op == "get" && !strings.Contains(r.Key, "exclusive") {
				return store.ErrPermission
			}
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			hole(t, func(t *testing.T, w *world, a, b client) bool {
				s, err := a.lock(t.Context(), Shared)
				if err != nil {
					t.Fatal(err)
				}
				b.hooks.After(after)
				x, err := b.lock(t.Context(), Exclusive)
				if x == nil && errors.Is(err, ErrHeld) {
					t.Errorf("a store that fails is reported as a lock: %v", err)
				}
				defer end(s, x)
				return both(s, x)
			})
		})
	}
	t.Run("garbage", func(t *testing.T) {
		hole(t, func(t *testing.T, w *world, a, b client) bool {
			s, err := a.lock(t.Context(), Shared)
			if err != nil {
				t.Fatal(err)
			}
			for _, key := range w.keys() {
				w.put(key, []byte(`{"operation": "backup", "holder`))
			}
			x, _ := b.lock(t.Context(), Exclusive)
			defer end(s, x)
			return both(s, x)
		})
	})
}

// TestSkewHidesNoLiveLock: a reader's wrong clock hides no live lock.
// Hole 4 of the original protocol: docs/protocol.md.
func TestSkewHidesNoLiveLock(t *testing.T) {
	hole(t, func(t *testing.T, w *world, a, b client) bool {
		b.clock.setSkew(35 * time.Second)
		s, err := a.lock(t.Context(), Shared)
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(29 * time.Second)
		x, _ := b.lock(t.Context(), Exclusive)
		defer end(s, x)
		return both(s, x)
	})
}

// TestHolderEndsWithItsLease: a holder that can't refresh ends before its lease does.
// Hole 5 of the original protocol: docs/protocol.md.
func TestHolderEndsWithItsLease(t *testing.T) {
	hole(t, func(t *testing.T, w *world, a, b client) bool {
		s, err := a.lock(t.Context(), Shared)
		if err != nil {
			t.Fatal(err)
		}
		a.hooks.Before(outage)
		time.Sleep(65 * time.Second)
		x, err := b.lock(t.Context(), Exclusive)
		if err != nil {
			t.Fatal(err)
		}
		result := both(s, x)
		a.hooks.Before(nil)
		end(s, x)
		return result
	})
}

// TestRefreshRevivesNoBrokenLock: a refresh in flight doesn't bring back a lock that was broken.
// Hole 5 of the original protocol: docs/protocol.md.
func TestRefreshRevivesNoBrokenLock(t *testing.T) {
	hole(t, func(t *testing.T, w *world, a, b client) bool {
		s, err := a.lock(t.Context(), Shared)
		if err != nil {
			t.Fatal(err)
		}
		came, gate := a.pause("put", "lock.shared")
		<-came
		if _, err := b.Break(t.Context(), BreakOptions{}); err != nil {
			t.Fatal(err)
		}
		x, err := b.lock(t.Context(), Exclusive)
		if err != nil {
			t.Fatal(err)
		}
		close(gate)
		time.Sleep(2 * time.Minute)
		defer end(s, x)
		return both(s, x)
	})
}

// TestPausedHolderEndsWhenItWakes: a paused process doesn't carry on after another holder has come in.
// Hole 6 of the original protocol: docs/protocol.md.
func TestPausedHolderEndsWhenItWakes(t *testing.T) {
	hole(t, func(t *testing.T, w *world, a, b client) bool {
		s, err := a.lock(t.Context(), Shared)
		if err != nil {
			t.Fatal(err)
		}
		a.clock.Stop(2 * time.Minute)
		time.Sleep(70 * time.Second)
		x, err := b.lock(t.Context(), Exclusive)
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(51 * time.Second) // a second after it woke
		defer end(s, x)
		return both(s, x)
	})
}

// versioned keeps versions as B2 does: a delete that names no version, or only
// the newest, uncovers the one before it.
type versioned struct {
	store.Store
	mu  sync.Mutex // held while a request is carried out
	old map[string][][]byte
}

func (v *versioned) Put(ctx context.Context, key string, body []byte, opts store.PutOptions) (store.Object, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	before, _, berr := v.Store.Get(ctx, key, 1<<20)
	o, err := v.Store.Put(ctx, key, body, opts)
	if err == nil && berr == nil {
		v.old[key] = append(v.old[key], before)
	}
	return o, err
}

// deleteNewest is the delete of a driver that doesn't use versions.
func (v *versioned) deleteNewest(ctx context.Context, key string) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	if n := len(v.old[key]); n > 0 {
		before := v.old[key][n-1]
		v.old[key] = v.old[key][:n-1]
		_, err := v.Store.Put(ctx, key, before, store.PutOptions{})
		return err
	}
	return v.Store.Delete(ctx, key)
}

// Delete keeps the contract of store.Store, as store/storetest checks: nothing of the key is
// shown afterwards.
func (v *versioned) Delete(ctx context.Context, key string) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	delete(v.old, key)
	return v.Store.Delete(ctx, key)
}

// naive is a versioned store with the driver of the original.
type naive struct{ *versioned }

func (n naive) Delete(ctx context.Context, key string) error { return n.deleteNewest(ctx, key) }

// TestDeleteUncoversNoOldVersion: on a store that keeps versions a released lock isn't
// uncovered again, because the driver deletes the whole key. Hole 7 of the original protocol:
// docs/protocol.md.
func TestDeleteUncoversNoOldVersion(t *testing.T) {
	hole(t, func(t *testing.T, w *world, a, b client) bool {
		v := &versioned{Store: w.mem, old: map[string][][]byte{}}
		for _, c := range []client{a, b} {
			if c.hooks.Store = v; t.Name() == "TestDeleteUncoversNoOldVersion/original" {
				c.hooks.Store = naive{v}
			}
		}
		s, err := a.lock(t.Context(), Shared)
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(95 * time.Second)
		end(s)
		x, err := b.lock(t.Context(), Exclusive)
		defer end(x)
		return err != nil // the released lock is there again
	})
}
