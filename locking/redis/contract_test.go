package redis

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/repolock/repolock/internal/test/assert"
	"github.com/repolock/repolock/internal/test/lockcheck"
	"github.com/repolock/repolock/internal/test/rounds"
	"github.com/repolock/repolock/locking"
	"github.com/repolock/repolock/locking/lockingtest"
)

// TestConformance: the backend keeps the contract. So does one of a caller's client, which retries.
func TestConformance(t *testing.T) {
	for name, caller := range map[string]bool{"own client": false, "a caller's client": true} {
		t.Run(name, func(t *testing.T) {
			s := newStore(t)
			c := config(t, s.address, caller)
			c.Lose = func(_ *testing.T, key string) {
				s.mu.Lock()
				defer s.mu.Unlock()
				delete(s.entries, prefix(caller)+key)
			}
			c.Advance = func(d time.Duration) { s.mu.Lock(); defer s.mu.Unlock(); s.ahead += d }
			lockingtest.Run(t, c)
			for key := range s.entries {
				t.Errorf("left behind: %s", key)
			}
		})
	}
}

// prefix is of the clients of config.
func prefix(caller bool) string {
	if caller {
		return "app:"
	}
	return DefaultPrefix
}

// config is of a server's clients.
func config(t *testing.T, address string, caller bool) lockingtest.Config {
	t.Helper()
	open := func(t *testing.T) locking.Backend { return client(t, address) }
	if caller {
		c := goredis.NewUniversalClient(&goredis.UniversalOptions{Addrs: []string{address}, ContextTimeoutEnabled: true, Protocol: 2})
		t.Cleanup(func() { c.Close() })
		open = func(t *testing.T) locking.Backend {
			b := New(c, "app:", Options{})
			t.Cleanup(func() { b.Close() })
			return b
		}
	}
	return lockingtest.Config{Rounds: rounds.Fewer(1000, 100), New: open, Expires: true,
		BadKeys: []string{"", "a\nb", "\x00", "\xff", strings.Repeat("k", 513)}}
}

// TestHolder: Inspect returns the holder from the note, which has no token, and not after
// another program has taken the lock. A renewal keeps the note for another ttl.
func TestHolder(t *testing.T) {
	s := newStore(t)
	b := open(t, "redis://"+s.address+"/0?key=k", Options{Holder: "nightly prune", Host: "db1", PID: 42, Version: "1.2"})
	before := time.Now()
	h := lockcheck.Acquire(t, b, "k", ttl)
	s.ahead = ttl / 2
	lockcheck.Renew(t, b, h)
	s.ahead = ttl
	info, err := client(t, s.address).Inspect(t.Context(), "k")
	if err != nil || info == nil || info.Holder != "nightly prune" || info.Host != "db1" || info.PID != 42 || info.TTL != ttl ||
		info.Acquired.Before(before.Add(-time.Second)) || info.Renewed.IsZero() || info.Revision == "" {
		t.Errorf("%+v, %v", info, err)
	}
	if note := s.entries["repolock:holder:bext:lock:k"].value; strings.Contains(note+info.Revision, h.Token()) || !strings.Contains(note, "db1") {
		t.Errorf("the note: %s", note)
	}
	s.put("bext:lock:k", "theirs", "60000")
	if info, err := b.Inspect(t.Context(), "k"); err != nil || info == nil || info.Holder != "" || !info.Acquired.IsZero() {
		t.Errorf("another program's: %+v, %v", info, err)
	}
	lockcheck.Lost(t, "renew", b.Renew(t.Context(), h))
	lockcheck.Lost(t, "release", b.Release(t.Context(), h))
}

// TestTTL: the ttl is in whole milliseconds, rounded up, and at least one.
func TestTTL(t *testing.T) {
	b := client(t, newStore(t).address)
	if _, ok, err := b.TryLock(t.Context(), "k", time.Millisecond-1); ok || err == nil {
		t.Errorf("acquired %v, %v", ok, err)
	}
	h := lockcheck.Acquire(t, b, "k", time.Hour+1)
	info, err := b.Inspect(t.Context(), "k")
	assert.That(t, err == nil && info != nil && info.TTL == time.Hour+time.Millisecond, "%+v, %v", info, err)
	lockcheck.Release(t, b, h)
	h = lockcheck.Acquire(t, b, "k", 1<<63-1) // 292 years
	lockcheck.Renew(t, b, h)
	info, err = b.Inspect(t.Context(), "k")
	assert.That(t, err == nil && info != nil && info.TTL >= 1<<62, "%+v, %v", info, err)
	lockcheck.Release(t, b, h)
}

// TestClose: a closed backend does nothing, and leaves locks to expire.
func TestClose(t *testing.T) {
	s := newStore(t)
	b := client(t, s.address)
	h := lockcheck.Acquire(t, b, "k", ttl)
	s.gate.Lock()
	renewed := make(chan error)
	go func() { renewed <- b.Renew(context.Background(), h) }()
	assert.Is(t, b.Close(), nil)
	if err := <-renewed; err == nil || errors.Is(err, locking.ErrLost) {
		t.Errorf("renew during Close: %v", err)
	}
	s.gate.Unlock()
	if _, ok, err := b.TryLock(t.Context(), "l", ttl); ok || err == nil || errors.Is(err, locking.ErrUnreachable) {
		t.Errorf("acquired %v, %v", ok, err)
	}
	lockcheck.Held(t, client(t, s.address), "k")
}
