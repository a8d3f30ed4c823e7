package redis

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/repolock/repolock/internal/test/assert"
	"github.com/repolock/repolock/internal/test/lockcheck"
	"github.com/repolock/repolock/internal/test/rounds"
	"github.com/repolock/repolock/locking"
	"github.com/repolock/repolock/locking/lockingtest"
)

// TestConformance: the backend keeps the contract.
func TestConformance(t *testing.T) {
	s := newStore(t)
	c := config(s.address)
	c.Lose = func(_ *testing.T, key string) {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.entries, DefaultPrefix+key)
	}
	c.Advance = func(d time.Duration) { s.mu.Lock(); defer s.mu.Unlock(); s.ahead += d }
	lockingtest.Run(t, c)
	for key := range s.entries {
		t.Errorf("left behind: %s", key)
	}
}

// config describes the backend on a server.
func config(address string) lockingtest.Config {
	return lockingtest.Config{Rounds: rounds.Fewer(1000, 100), Expires: true,
		New:     func(t *testing.T) locking.Backend { return client(t, address) },
		BadKeys: []string{"", "a\nb", "\x00", "\xff", strings.Repeat("k", 513)}}
}

// TestHolder: Inspect returns the holder from the note, which has no token, and not after
// another program has taken the lock. A renewal keeps the note for another ttl.
func TestHolder(t *testing.T) {
	s := newStore(t)
	b := open(t, "redis://"+s.address+"/0?key=k", Options{Holder: "nightly prune", Version: "1.2"})
	host, _ := os.Hostname()
	before := time.Now()
	h := lockcheck.Acquire(t, b, "k", ttl)
	s.ahead = ttl / 2
	lockcheck.Renew(t, b, h)
	s.ahead = ttl
	info, err := client(t, s.address).Inspect(t.Context(), "k")
	if err != nil || info == nil || info.Holder != "nightly prune" || info.Host != host || info.PID != os.Getpid() || info.TTL != ttl ||
		info.Acquired.Before(before.Add(-time.Second)) || info.Renewed.IsZero() || info.Revision == "" {
		t.Errorf("%+v, %v", info, err)
	}
	if note := s.entries["repolock:holder:bext:lock:k"].value; strings.Contains(note+info.Revision, h.Token()) || !strings.Contains(note, host) {
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
