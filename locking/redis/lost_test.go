//go:build programs

package redis_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/repolock/repolock/internal/test/redistest"
	"github.com/repolock/repolock/locking"
	"github.com/repolock/repolock/locking/redis"
)

// soon is a context that ends while an answer is awaited, even on a slow machine.
func soon(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	t.Cleanup(cancel)
	return ctx
}

// TestLostAnswerToSET: if the connection breaks after SET was executed, the lock is acquired, and
// another client sees it held.
func TestLostAnswerToSET(t *testing.T) {
	s := redistest.New(t)
	p := newLossy(t, s.Addr())
	b, other := client(t, p.address), client(t, s.Addr())
	lost := p.losing("BEXT:LOCK:K", closed)
	h := acquire(t, b, "k", ttl)
	if !lost() {
		t.Fatal("no answer was lost")
	}
	isHeld(t, other, "k")
	if err := b.Renew(t.Context(), h); err != nil {
		t.Error(err)
	}
	if err := b.Release(t.Context(), h); err != nil {
		t.Error(err)
	}
}

// TestLostRequest: if SET is lost, nothing is held.
func TestLostRequest(t *testing.T) {
	s := redistest.New(t)
	p := newLossy(t, s.Addr())
	b, other := client(t, p.address), client(t, s.Addr())
	b.SetTakedownLimit(time.Minute)
	p.losing("BEXT:LOCK:K", dropped)
	_, ok, err := b.TryLock(t.Context(), "k", ttl)
	if ok || err == nil || errors.Is(err, locking.ErrUnreachable) || !strings.Contains(err.Error(), "nothing is held") {
		t.Errorf("acquired %v, %v", ok, err)
	}
	acquire(t, other, "k", ttl)
	isHeld(t, b, "k")
}

// TestLostRequestBesideAnother: if SET is lost and another holder has the lock, it is held.
func TestLostRequestBesideAnother(t *testing.T) {
	s := redistest.New(t)
	p := newLossy(t, s.Addr())
	b, other := client(t, p.address), client(t, s.Addr())
	h := acquire(t, other, "k", ttl)
	for _, how := range []loss{dropped, closed} {
		p.losing("BEXT:LOCK:K", how)
		isHeld(t, b, "k")
	}
	if err := other.Renew(t.Context(), h); err != nil {
		t.Error(err)
	}
}

// TestSilenceAfterSET: if the answer doesn't come before the context ends, what SET has stored is
// taken down, and the error says so.
func TestSilenceAfterSET(t *testing.T) {
	s := redistest.New(t)
	p := newLossy(t, s.Addr())
	b, other := client(t, p.address), client(t, s.Addr())
	b.SetTakedownLimit(time.Minute)
	for _, limit := range []func(*testing.T) context.Context{soon, canceledSoon} {
		lost := p.losing("BEXT:LOCK:K", swallow)
		_, ok, err := b.TryLock(limit(t), "k", ttl)
		if ok || err == nil || errors.Is(err, locking.ErrUnreachable) || !lost() ||
			!strings.HasSuffix(err.Error(), "nothing is held") {
			t.Errorf("acquired %v, %v", ok, err)
		}
		if err := other.Release(t.Context(), acquire(t, other, "k", ttl)); err != nil {
			t.Error(err)
		}
	}
}

// TestDetainedSET: if SET is answered after the context has ended, the lock is taken down after
// that, and not before.
func TestDetainedSET(t *testing.T) {
	s := redistest.New(t)
	p := newLossy(t, s.Addr())
	b, other := client(t, p.address), client(t, s.Addr())
	b.SetTakedownLimit(10 * time.Minute)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	p.losing("BEXT:LOCK:K", detained)
	returned := make(chan error)
	go func() {
		_, _, err := b.TryLock(ctx, "k", ttl)
		returned <- err
	}()
	<-p.detained
	cancel()
	time.Sleep(200 * time.Millisecond) // in which a takedown could overtake
	close(p.free)
	if err := <-returned; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	<-p.answered
	acquire(t, other, "k", ttl)
}

// canceledSoon has no deadline, which is all that go-redis looks at.
func canceledSoon(t *testing.T) context.Context {
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	time.AfterFunc(2*time.Second, cancel)
	return ctx
}

// TestRepeatedByTheClient: a client that sends SET again, because its answer was lost, acquires its
// own lock.
func TestRepeatedByTheClient(t *testing.T) {
	s := redistest.New(t)
	p := newLossy(t, s.Addr())
	c := goredis.NewClient(&goredis.Options{Addr: p.address, MaxRetries: 3, ContextTimeoutEnabled: true, Protocol: 2})
	defer c.Close()
	b := redis.New(c, redis.DefaultPrefix, redis.Options{})
	defer b.Close()
	if err := c.Ping(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	lost := p.losing("BEXT:LOCK:K", closed)
	h := acquire(t, b, "k", ttl)
	if !lost() {
		t.Fatal("no answer was lost")
	}
	if err := b.Release(t.Context(), h); err != nil {
		t.Error(err)
	}
}

// TestLateSET: a SET that a stopped server executes after TryLock has returned its error is no
// other holder for the next TryLock.
func TestLateSET(t *testing.T) {
	s := redistest.New(t)
	b, other := client(t, s.Addr()), client(t, s.Addr())
	if err := b.Release(t.Context(), acquire(t, b, "k", ttl)); err != nil { // connects
		t.Fatal(err)
	}
	s.Stop()
	_, ok, err := b.TryLock(soon(t), "k", ttl)
	if ok || !errors.Is(err, locking.ErrUnreachable) || !strings.Contains(err.Error(),
		"is held until its ttl of 1m0s is over") {
		t.Errorf("acquired %v, %v", ok, err)
	}
	s.Cont()
	becomes(t, func() bool { return s.CLI("EXISTS", "bext:lock:k") == "1" })
	isHeld(t, other, "k")
	h := acquire(t, b, "k", ttl)
	isHeld(t, other, "k")
	if err := b.Release(t.Context(), h); err != nil {
		t.Error(err)
	}
}

// TestLostAnswerToRenew: the error isn't ErrLost, the lock is renewed, and the next renewal works.
func TestLostAnswerToRenew(t *testing.T) {
	s := redistest.New(t)
	p := newLossy(t, s.Addr())
	b, other := client(t, p.address), client(t, s.Addr())
	h := acquire(t, b, "k", ttl)
	for _, how := range []loss{closed, swallow, dropped} {
		lost := p.losing("EVAL", how)
		if err := b.Renew(soon(t), h); err == nil || errors.Is(err, locking.ErrLost) || !lost() {
			t.Errorf("renew: %v", err)
		}
		if err := b.Renew(t.Context(), h); err != nil {
			t.Errorf("the next renewal: %v", err)
		}
		isHeld(t, other, "k")
	}
}

// TestLostAnswerToRelease: the lock is free, and the error is neither nil nor ErrLost, because the
// lock can have been lost before. A lost request is repeated.
func TestLostAnswerToRelease(t *testing.T) {
	s := redistest.New(t)
	p := newLossy(t, s.Addr())
	b, other := client(t, p.address), client(t, s.Addr())
	if err := b.Release(t.Context(), acquire(t, b, "k", ttl)); err != nil { // so that the server knows the script
		t.Fatal(err)
	}
	for how, works := range map[loss]bool{closed: false, swallow: false, dropped: true} {
		h := acquire(t, b, "k", ttl)
		lost := p.losing("EVAL", how)
		err := b.Release(soon(t), h)
		if works != (err == nil) || errors.Is(err, locking.ErrLost) || !lost() {
			t.Errorf("%v: release: %v", how, err)
		}
		if err := other.Release(t.Context(), acquire(t, other, "k", ttl)); err != nil {
			t.Error(err)
		}
		isLost(t, b.Release(t.Context(), h))
	}
}

// TestLostAnswerToBreak: the error says that the outcome isn't known.
func TestLostAnswerToBreak(t *testing.T) {
	s := redistest.New(t)
	p := newLossy(t, s.Addr())
	b, other := client(t, p.address), client(t, s.Addr())
	if broken, err := b.Break(t.Context(), &locking.Info{Key: "k", Revision: "r"}, false); broken ||
		err != nil { // so that the server knows the script
		t.Fatal(broken, err)
	}
	h := acquire(t, other, "k", ttl)
	info, err := b.Inspect(t.Context(), "k")
	if err != nil || info == nil {
		t.Fatal(info, err)
	}
	p.losing("EVAL", closed)
	if broken, err := b.Break(t.Context(), info, false); broken || err == nil || !strings.Contains(err.Error(),
		"isn't known") {
		t.Errorf("broken %v, %v", broken, err)
	}
	isLost(t, other.Renew(t.Context(), h))
}
