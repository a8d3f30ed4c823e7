package lockingtest

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/repolock/repolock/locking"
)

func contentionIsNoError(f *fixture) {
	h := f.acquire(f.a, f.key, long)
	f.refused(f.b, f.key)
	f.refused(f.a, f.key) // even the holder can't acquire it again
	f.release(f.a, h)
}

func keysAreIndependent(f *fixture) {
	for i, key := range f.Keys {
		h := f.acquire(f.a, key, long)
		for _, other := range f.Keys[i+1:] {
			f.release(f.b, f.acquire(f.b, other, long))
			f.refused(f.b, key)
		}
		f.release(f.a, h)
	}
}

func badKeys(f *fixture) {
	for _, key := range f.BadKeys {
		if _, ok, err := f.a.TryLock(f.Context(), key, long); ok || !errors.Is(err, locking.ErrKey) {
			f.Errorf("key %q: acquired %v, %v, want ErrKey", key, ok, err)
		}
		if i, ok := f.a.Backend.(locking.Inspector); ok {
			if info, err := i.Inspect(f.Context(), key); info != nil || !errors.Is(err, locking.ErrKey) {
				f.Errorf("inspect of key %q: %+v, %v, want ErrKey", key, info, err)
			}
		}
		if b, ok := f.a.Backend.(locking.Breaker); ok {
			if broken, err := b.Break(f.Context(), &locking.Info{Key: key}, false); broken || !errors.Is(err, locking.ErrKey) {
				f.Errorf("break of key %q: %v, %v, want ErrKey", key, broken, err)
			}
		}
	}
}

// ttlIsPositive accepts a backend that replaces the ttl 0 by its default.
func ttlIsPositive(f *fixture) {
	for _, ttl := range []time.Duration{-1, 0} {
		h, ok, err := f.a.TryLock(f.Context(), f.key, ttl)
		if ok && (ttl < 0 || h.TTL() <= 0) || ok == (err != nil) {
			f.Errorf("ttl %v: acquired %v for %v, %v", ttl, ok, h.TTL(), err)
		}
		if ok {
			f.release(f.a, h)
		}
	}
	f.release(f.b, f.acquire(f.b, f.key, long))
}

func handles(f *fixture) {
	tokens := make(map[string]bool)
	for range 3 {
		h := f.acquire(f.a, f.key, long)
		if h.Key() != f.key || h.TTL() != long || h.Token() == "" || tokens[h.Token()] {
			f.Errorf("key %q, ttl %v, token %q after %v", h.Key(), h.TTL(), h.Token(), tokens)
		}
		tokens[h.Token()] = true
		f.release(f.a, h)
	}
}

func releaseFrees(f *fixture) {
	for range 3 {
		f.release(f.a, f.acquire(f.a, f.key, long))
		f.release(f.b, f.acquire(f.b, f.key, long))
	}
}

func zeroHandle(f *fixture) {
	var zero locking.Handle
	for name, call := range f.calls(f.a) {
		f.isLost(name, call(zero))
		h := f.acquire(f.a, f.key, long)
		f.isLost(name+" beside a lock", call(zero))
		f.refused(f.b, f.key)
		f.release(f.a, h)
	}
}

func cleanupKeeps(f *fixture) {
	h := f.acquire(f.a, f.key, long)
	for _, c := range []*client{f.a, f.b} {
		if err := c.Cleanup(f.Context()); err != nil {
			f.Errorf("cleanup: %v", err)
		}
	}
	f.refused(f.b, f.key)
	f.release(f.a, h)
	if err := f.a.Cleanup(f.Context()); err != nil {
		f.Errorf("cleanup of nothing: %v", err)
	}
	f.release(f.b, f.acquire(f.b, f.key, long))
}

func endedContext(f *fixture) {
	ctx, cancel := context.WithCancel(f.Context())
	cancel()
	f.returns(func() {
		if _, ok, err := f.a.TryLock(ctx, f.key, long); ok || err == nil {
			f.Errorf("acquired %v, %v", ok, err)
		}
	})
	f.release(f.b, f.acquire(f.b, f.key, long))
}

func endedContextRenews(f *fixture) {
	h := f.acquire(f.a, f.key, long)
	ctx, cancel := context.WithCancel(f.Context())
	cancel()
	f.returns(func() {
		if err := f.a.Renew(ctx, h); err == nil || errors.Is(err, locking.ErrLost) {
			f.Errorf("renew: %v", err)
		}
	})
	f.refused(f.b, f.key)
	if err := f.a.Renew(f.Context(), h); err != nil {
		f.Errorf("renew afterwards: %v", err)
	}
	f.release(f.a, h)
}

// endedContextOfTryLock checks that a lock outlives the context of its TryLock.
func endedContextOfTryLock(f *fixture) {
	ctx, cancel := context.WithCancel(f.Context())
	h, ok, err := f.a.TryLock(ctx, f.key, long)
	cancel()
	if !ok || err != nil {
		f.Fatalf("%q must be free: acquired %v, %v", f.key, ok, err)
	}
	f.pass(time.Millisecond) // for a goroutine that waits for the end of the context
	if w, ok := f.a.Backend.(locking.Watcher); ok {
		select {
		case <-w.Watch(h):
			f.Error("the loss of a held lock was noticed")
		default:
		}
	}
	if err := f.a.Renew(f.Context(), h); err != nil {
		f.Errorf("renew: %v", err)
	}
	f.refused(f.b, f.key)
	f.release(f.a, h)
}

// endedContextReleases checks that a release with an ended context either frees the lock, or returns an error other
// than ErrLost and can be repeated.
func endedContextReleases(f *fixture) {
	h := f.acquire(f.a, f.key, long)
	ctx, cancel := context.WithCancel(f.Context())
	cancel()
	f.returns(func() {
		err := f.a.Release(ctx, h)
		if errors.Is(err, locking.ErrLost) {
			f.Errorf("release of a held lock: %v", err)
		}
		if err == nil {
			return
		}
		// The first call can have released it in spite of its error.
		if err := f.a.Release(f.Context(), h); err != nil && !errors.Is(err, locking.ErrLost) {
			f.Errorf("release afterwards: %v", err)
		}
	})
	// A server can need a moment to notice a closed connection. The limit ends before the ttl, so
	// that expiry doesn't count as a release.
	for limit := time.Now().Add(min(f.Limit, long/2)); ; {
		h, ok, err := f.b.TryLock(f.Context(), f.key, long)
		if ok {
			f.release(f.b, h)
			return
		}
		if err != nil || time.Now().After(limit) {
			f.Fatalf("still held after its release: %v", err)
		}
		<-time.After(10 * time.Millisecond)
	}
}

// contextEndsMeanwhile ends the context at various steps of TryLock.
func contextEndsMeanwhile(f *fixture) {
	for i := range 20 {
		ctx, cancel := context.WithCancel(f.Context())
		go func() {
			for range i * i {
				dawdle()
			}
			cancel()
		}()
		f.returns(func() {
			h, ok, err := f.a.TryLock(ctx, f.key, f.TTL)
			switch {
			case ok && err != nil:
				f.Errorf("acquired, with an error: %v", err)
			case ok:
				// On a slow machine the ttl can be over by now.
				if err := f.a.Release(f.Context(), h); err != nil && !(f.Expires && errors.Is(err, locking.ErrLost)) {
					f.Errorf("release: %v", err)
				}
			case err == nil:
				f.Error("refused, and nothing was held")
			}
		})
		cancel()
		// A server can need a moment to notice a closed connection.
		h, _ := f.becomesFree(f.key)
		f.release(f.thief, h)
	}
}

// slack is how much rounding can change a ttl.
func (f *fixture) slack() time.Duration { return f.TTL / 20 }

// lasts checks that a lock is held until its ttl is over, or longer if locks don't expire.
func lasts(f *fixture) {
	sent := time.Now()
	h := f.acquire(f.a, f.key, f.TTL)
	switch {
	case !f.Expires:
		for range 2 {
			f.pass(2 * f.TTL)
			f.refused(f.b, f.key)
			if err := f.a.Renew(f.Context(), h); err != nil {
				f.Errorf("renew: %v", err)
			}
		}
		f.release(f.a, h)
	case f.Advance != nil:
		f.Advance(f.TTL - f.slack())
		f.refused(f.b, f.key)
		f.refused(f.thief, f.key)
		f.release(f.a, h)
	default:
		h, at := f.becomesFree(f.key)
		if at.Sub(sent) < f.TTL-f.slack() {
			f.Errorf("free after %v of %v", at.Sub(sent), f.TTL)
		}
		f.release(f.thief, h)
	}
}

func expiryFrees(f *fixture) {
	if !f.Expires {
		return
	}
	f.acquire(f.a, f.key, f.TTL)
	if f.Advance != nil {
		f.Advance(f.TTL + f.slack())
		f.onlyStolen()
		f.release(f.thief, f.acquire(f.thief, f.key, long))
		return
	}
	if f.Steal != nil {
		f.pass(f.TTL + f.slack())
		f.onlyStolen()
	}
	h, _ := f.becomesFree(f.key)
	f.release(f.thief, h)
}

// onlyStolen checks that an expired lock is refused to clients that don't steal.
func (f *fixture) onlyStolen() {
	f.Helper()
	if f.Steal != nil {
		f.refused(f.b, f.key)
		f.refused(f.c, f.key)
	}
}

// renewExtends begins again if a slow machine has let the ttl pass before Renew.
func renewExtends(f *fixture) {
	for tries := 20; f.Expires; tries-- {
		h := f.acquire(f.a, f.key, f.TTL)
		f.pass(f.TTL * 2 / 3)
		sent := time.Now()
		err := f.a.Renew(f.Context(), h)
		if tries > 0 && f.Advance == nil && errors.Is(err, locking.ErrLost) {
			continue
		}
		if err != nil {
			f.Fatalf("renew: %v", err)
		}
		if f.Advance != nil {
			f.Advance(f.TTL * 2 / 3)
			f.refused(f.b, f.key)
			f.Advance(f.TTL/3 + f.slack())
			f.release(f.thief, f.acquire(f.thief, f.key, long))
			return
		}
		h, at := f.becomesFree(f.key)
		if at.Sub(sent) < f.TTL-f.slack() {
			f.Errorf("free %v after a renewal for %v", at.Sub(sent), f.TTL)
		}
		f.release(f.thief, h)
		return
	}
}

// expiredHandle checks an expired handle while another client has the lock, and after its release.
func expiredHandle(f *fixture) {
	if !f.Expires {
		return
	}
	expired := f.acquire(f.a, f.key, f.TTL)
	f.pass(f.TTL + f.slack())
	h, _ := f.becomesFree(f.key)
	f.areLost("beside another holder of a lock that has expired", f.calls(f.a), expired)
	f.refused(f.c, f.key)
	f.release(f.thief, h)
	f.areLost("after another holder of a lock that has expired", f.calls(f.a), expired)
	f.release(f.b, f.acquire(f.b, f.key, long))
}

// oneWinner lets all clients try at once in each round. The winner keeps the lock until every client
// has tried.
func oneWinner(f *fixture) {
	clients := f.clients()
	without := 0
	for round := range f.Rounds {
		won := make([]locking.Handle, len(clients))
		var winners atomic.Int32
		begin := make(chan struct{})
		var all sync.WaitGroup
		for i, c := range clients {
			all.Go(func() {
				<-begin
				h, ok, err := c.TryLock(f.Context(), f.key, long)
				if err != nil {
					f.Errorf("round %d: contention is an error: %v", round, err)
				}
				if ok {
					winners.Add(1)
					won[i] = h
				}
			})
		}
		close(begin)
		f.returns(all.Wait)
		if n := winners.Load(); n > 1 {
			f.Errorf("round %d has %d winners", round, n)
		} else if n == 0 {
			without++
		}
		for i, h := range won {
			if h != (locking.Handle{}) {
				f.release(clients[i], h)
			}
		}
		if f.Failed() {
			return
		}
	}
	if without > f.Rounds/2 {
		f.Errorf("%d of %d rounds have no winner", without, f.Rounds)
	}
}

// neverTwo lets all clients acquire and release without a pause, so that attempts coincide with
// releases.
func neverTwo(f *fixture) {
	var inside, rounds atomic.Int32
	one := func(c *client) bool {
		h, ok, err := c.TryLock(f.Context(), f.key, long)
		if err != nil {
			f.Errorf("contention is an error: %v", err)
			return false
		}
		if !ok {
			f.rest()
			return true
		}
		if n := inside.Add(1); n != 1 {
			f.Errorf("round %d: %d holders", rounds.Load(), n)
		}
		dawdle()
		if err := c.Renew(f.Context(), h); err != nil {
			f.Errorf("round %d: the holder's renew: %v", rounds.Load(), err)
		}
		rounds.Add(1)
		inside.Add(-1)
		if err := c.Release(f.Context(), h); err != nil {
			f.Errorf("the holder's release: %v", err)
		}
		return true
	}
	var all sync.WaitGroup
	for _, c := range f.clients() {
		all.Go(func() {
			for last, since := int32(-1), time.Now(); rounds.Load() < int32(f.Rounds) && !f.Failed(); {
				if now := rounds.Load(); now != last {
					last, since = now, time.Now()
				} else if time.Since(since) > f.Limit {
					f.Errorf("no more rounds after %d", last)
				}
				if !one(c) {
					return
				}
			}
		})
	}
	all.Wait()
}

func (f *fixture) clients() []*client {
	clients := []*client{f.a, f.b}
	for len(clients) < f.Clients {
		if len(clients)%2 == 0 {
			clients = append(clients, f.client(f.New))
		} else {
			clients = append(clients, f.other())
		}
	}
	return clients
}
