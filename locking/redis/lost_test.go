//go:build programs

package redis

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/repolock/repolock/internal/test/assert"
	"github.com/repolock/repolock/internal/test/lockcheck"
	"github.com/repolock/repolock/internal/test/redistest"
	"github.com/repolock/repolock/internal/test/tcpproxy"
	"github.com/repolock/repolock/locking"
)

// TestSilence runs all that waits for an answer that doesn't come at once.
func TestSilence(t *testing.T) {
	var all sync.WaitGroup
	for name, test := range map[string]func(*testing.T){
		"after SET": silenceAfterSET, "late SET": lateSET, "renew": lostAnswerToRenew, "release": lostAnswerToRelease,
		"server stopped": serverStopped, "no deadline": noDeadline,
	} {
		all.Go(func() { t.Run(name, test) })
	}
	all.Wait()
}

// TestLostAnswerToSET: if the connection breaks after SET was executed, the lock is acquired, and
// another client sees it held.
func TestLostAnswerToSET(t *testing.T) {
	p, b, other := lossy(t)
	lost := p.Lose("bext:lock:k", tcpproxy.Close)
	h := lockcheck.Acquire(t, b, "k", ttl)
	<-lost
	lockcheck.Held(t, other, "k")
	lockcheck.Renew(t, b, h)
	lockcheck.Release(t, b, h)
}

// TestLostRequest: if SET is lost, nothing is held, unless another holder has the lock.
func TestLostRequest(t *testing.T) {
	p, b, other := lossy(t)
	b.takedownLimit = time.Minute
	p.Lose("bext:lock:k", tcpproxy.Drop)
	_, ok, err := b.TryLock(t.Context(), "k", ttl)
	if ok || err == nil || errors.Is(err, locking.ErrUnreachable) || !strings.Contains(err.Error(), "nothing is held") {
		t.Errorf("acquired %v, %v", ok, err)
	}
	h := lockcheck.Acquire(t, other, "k", ttl)
	for _, how := range []tcpproxy.Loss{tcpproxy.Drop, tcpproxy.Close} {
		p.Lose("bext:lock:k", how)
		lockcheck.Held(t, b, "k")
	}
	lockcheck.Renew(t, other, h)
}

// silenceAfterSET: if the answer doesn't come before the context ends, what SET has stored is
// taken down, and the error says so.
func silenceAfterSET(t *testing.T) {
	var all sync.WaitGroup
	for _, deadline := range []bool{true, false} {
		p, b, other := lossy(t)
		b.takedownLimit = time.Minute
		lost := p.Lose("bext:lock:k", tcpproxy.Swallow)
		ctx, cancel := context.WithCancel(t.Context())
		if deadline {
			ctx, cancel = context.WithTimeout(t.Context(), 2*time.Second)
		} else { // which is all that go-redis looks at
			all.Go(func() {
				<-lost
				cancel()
			})
		}
		all.Go(func() {
			defer cancel()
			_, ok, err := b.TryLock(ctx, "k", ttl)
			if ok || err == nil || errors.Is(err, locking.ErrUnreachable) || !strings.HasSuffix(err.Error(), "nothing is held") {
				t.Errorf("acquired %v, %v", ok, err)
			}
			if h, ok, err := other.TryLock(t.Context(), "k", ttl); !ok || err != nil || other.Release(t.Context(), h) != nil {
				t.Errorf("it isn't free: %v, %v", ok, err)
			}
		})
	}
	all.Wait()
}

// TestDetainedSET: if SET is answered after the context has ended, the lock is taken down after
// that, and not before.
func TestDetainedSET(t *testing.T) {
	p, b, other := lossy(t)
	b.takedownLimit = 10 * time.Minute
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	detained := p.Lose("bext:lock:k", tcpproxy.Detain)
	returned := make(chan error)
	go func() {
		_, _, err := b.TryLock(ctx, "k", ttl)
		returned <- err
	}()
	<-detained
	cancel()
	time.Sleep(50 * time.Millisecond) // in which a takedown could overtake
	p.Free()
	assert.Is(t, <-returned, context.Canceled)
	lockcheck.Acquire(t, other, "k", ttl)
}

// lateSET: a SET that a stopped server executes after TryLock has returned its error is no
// other holder for the next TryLock.
func lateSET(t *testing.T) {
	s := redistest.New(t)
	b, other := client(t, s.Addr()), client(t, s.Addr())
	if err := b.Release(t.Context(), lockcheck.Acquire(t, b, "k", ttl)); err != nil { // connects
		t.Fatal(err)
	}
	s.Stop()
	_, ok, err := b.TryLock(soon(t), "k", ttl)
	if ok || !errors.Is(err, locking.ErrUnreachable) || !strings.Contains(err.Error(),
		"is held until its ttl of 1m0s is over") {
		t.Errorf("acquired %v, %v", ok, err)
	}
	s.Cont()
	becomes(t, func() bool { info, err := other.Inspect(t.Context(), "k"); return info != nil && err == nil })
	lockcheck.Held(t, other, "k")
	h := lockcheck.Acquire(t, b, "k", ttl)
	lockcheck.Held(t, other, "k")
	lockcheck.Release(t, b, h)
}

// lostAnswerToRenew: the error isn't ErrLost, the lock is renewed, and the next renewal works.
func lostAnswerToRenew(t *testing.T) {
	p, b, other := lossy(t)
	h := lockcheck.Acquire(t, b, "k", ttl)
	for _, how := range []tcpproxy.Loss{tcpproxy.Close, tcpproxy.Swallow, tcpproxy.Drop} {
		lost := p.Lose("PEXPIRE', KEYS[1]", how)
		if err := b.Renew(soon(t), h); err == nil || errors.Is(err, locking.ErrLost) {
			t.Errorf("renew: %v", err)
		}
		<-lost
		lockcheck.Renew(t, b, h)
		lockcheck.Held(t, other, "k")
	}
}

// lostAnswerToRelease: the lock is free, and the error is neither nil nor ErrLost, because the
// lock can have been lost before. A lost request is repeated.
func lostAnswerToRelease(t *testing.T) {
	p, b, other := lossy(t)
	for how, works := range map[tcpproxy.Loss]bool{tcpproxy.Close: false, tcpproxy.Swallow: false, tcpproxy.Drop: true} {
		h := lockcheck.Acquire(t, b, "k", ttl)
		lost := p.Lose("'DEL', KEYS[1]", how)
		err := b.Release(soon(t), h)
		assert.That(t, works == (err == nil) && !errors.Is(err, locking.ErrLost), "%v: release: %v", how, err)
		<-lost
		lockcheck.Release(t, other, lockcheck.Acquire(t, other, "k", ttl))
		lockcheck.Lost(t, "release", b.Release(t.Context(), h))
	}
}

// TestLostAnswerToBreak: the error says that the outcome isn't known.
func TestLostAnswerToBreak(t *testing.T) {
	p, b, other := lossy(t)
	h := lockcheck.Acquire(t, other, "k", ttl)
	info := lockcheck.Seen(t, b, "k")
	p.Lose("sha1hex", tcpproxy.Close)
	if broken, err := b.Break(t.Context(), info, false); broken || err == nil || !strings.Contains(err.Error(),
		"isn't known") {
		t.Errorf("broken %v, %v", broken, err)
	}
	lockcheck.Lost(t, "renew", other.Renew(t.Context(), h))
}

// serverStopped: each method returns when its context ends, or TryLock a second later, from a
// server that accepts connections and says nothing.
func serverStopped(t *testing.T) {
	s := redistest.New(t)
	b := client(t, s.Addr())
	h := lockcheck.Acquire(t, b, "k", ttl)
	s.Stop()
	const limit = time.Minute // which only a hang reaches
	var calls sync.WaitGroup
	for name, call := range map[string]func(context.Context) error{
		"TryLock": func(ctx context.Context) error { _, _, err := b.TryLock(ctx, "k", ttl); return err },
		"Renew":   func(ctx context.Context) error { return b.Renew(ctx, h) },
		"Release": func(ctx context.Context) error { return b.Release(ctx, h) },
		"Inspect": func(ctx context.Context) error { _, err := b.Inspect(ctx, "k"); return err },
		"Break": func(ctx context.Context) error {
			_, err := b.Break(ctx, &locking.Info{Key: "k", Revision: "r"}, false)
			return err
		},
		"Examine": func(ctx context.Context) error { _, err := b.Examine(ctx); return err },
	} {
		for _, bounded := range []func(*testing.T) context.Context{soon, canceledSoon} {
			ctx, begin := bounded(t), time.Now()
			calls.Go(func() {
				_, deadline := ctx.Deadline()
				err, took := call(ctx), time.Since(begin)
				if err == nil || errors.Is(err, locking.ErrLost) || errors.Is(err, locking.ErrUnreachable) != deadline ||
					took > limit {
					t.Errorf("%s: %v after %v", name, err, took)
				}
				t.Logf("%s: %v", name, took.Round(10*time.Millisecond))
			})
		}
	}
	calls.Wait()
	s.Cont()
	if err := b.Renew(t.Context(), h); err != nil && !errors.Is(err, locking.ErrLost) { // released by what was sent
		t.Error(err)
	}
}

// noDeadline: even without a deadline, a stopped server doesn't block a method for ever.
func noDeadline(t *testing.T) {
	s := redistest.New(t)
	b := client(t, s.Addr())
	h := lockcheck.Acquire(t, b, "k", ttl)
	s.Stop()
	defer s.Cont()
	assert.Is(t, b.Renew(context.Background(), h), locking.ErrUnreachable, "renew")
}

// lossy returns a client whose requests to a server a proxy can lose, and a client without a proxy.
func lossy(t *testing.T) (p *tcpproxy.Proxy, b, other *Backend) {
	t.Helper()
	s := redistest.New(t)
	p = tcpproxy.New(t, s.Addr())
	return p, client(t, p.Address()), client(t, s.Addr())
}

// soon is a context that ends while an answer is awaited, even on a slow machine.
func soon(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	t.Cleanup(cancel)
	return ctx
}

// canceledSoon has no deadline, which is all that go-redis looks at.
func canceledSoon(t *testing.T) context.Context {
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	time.AfterFunc(2*time.Second, cancel)
	return ctx
}

// becomes waits until a condition is true.
func becomes(t *testing.T, condition func() bool) {
	t.Helper()
	const limit = time.Minute // which only a failure reaches
	for begin := time.Now(); !condition(); time.Sleep(20 * time.Millisecond) {
		assert.Need(t, time.Since(begin) <= limit, "what must come doesn't")
	}
}
