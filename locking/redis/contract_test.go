//go:build programs

package redis

import (
	"context"
	"errors"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/repolock/repolock/internal/test/assert"
	"github.com/repolock/repolock/internal/test/lockcheck"
	"github.com/repolock/repolock/internal/test/redistest"
	"github.com/repolock/repolock/internal/test/rounds"
	"github.com/repolock/repolock/locking"
	"github.com/repolock/repolock/locking/lockingtest"
)

// TestConformance: the backend keeps the contract, and leaves nothing on the server.
func TestConformance(t *testing.T) {
	s := redistest.New(t)
	lockingtest.Run(t, lockingtest.Config{
		Rounds: rounds.Fewer(1000, 100),
		New:    func(t *testing.T) locking.Backend { return client(t, s.Addr()) },
		Lose: func(t *testing.T, key string) {
			t.Helper()
			assert.Equal(t, s.CLI("DEL", DefaultPrefix+key), "1", "deleted keys")
		},
		Expires: true,
		BadKeys: []string{"", "a\nb", "\x00", "\xff", strings.Repeat("k", 513)},
	})
	assert.Equal(t, s.CLI("KEYS", "*"), "", "what is left behind")
}

// TestHolder: Inspect returns the holder from the note, which has no token, and not after
// another program has taken the lock. A renewal keeps the note for another ttl.
func TestHolder(t *testing.T) {
	s := redistest.New(t)
	b := open(t, "redis://"+s.Addr()+"/0?key=k", Options{Holder: "nightly prune", Version: "1.2"})
	host, _ := os.Hostname()
	before := time.Now()
	h := lockcheck.Acquire(t, b, "k", time.Hour)
	const note = "repolock:holder:bext:lock:k"
	assert.Equal(t, s.CLI("PEXPIRE", note, "1800000"), "1")
	lockcheck.Renew(t, b, h)
	left, err := strconv.Atoi(s.CLI("PTTL", note))
	assert.That(t, err == nil && left > 1800000, "the note lasts for %d ms more, %v", left, err)
	info := lockcheck.Seen(t, client(t, s.Addr()), "k")
	if info.Holder != "nightly prune" || info.Host != host || info.PID != os.Getpid() || info.TTL != time.Hour ||
		info.Acquired.Before(before.Add(-time.Second)) || info.Renewed.IsZero() || info.Revision == "" {
		t.Errorf("%+v", info)
	}
	text := s.CLI("GET", note)
	assert.That(t, !strings.Contains(text+info.Revision, h.Token()) && strings.Contains(text, host), "the note: %s", text)
	s.CLI("SET", "bext:lock:k", "theirs", "PX", "60000")
	info = lockcheck.Seen(t, b, "k")
	assert.That(t, info.Holder == "" && info.Acquired.IsZero(), "another program's: %+v", info)
	lockcheck.Lost(t, "renew", b.Renew(t.Context(), h))
	lockcheck.Lost(t, "release", b.Release(t.Context(), h))
}

// TestTTL: the ttl is in whole milliseconds, rounded up, and at least one.
func TestTTL(t *testing.T) {
	b := client(t, redistest.New(t).Addr())
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
	s := redistest.New(t)
	b := client(t, s.Addr())
	h := lockcheck.Acquire(t, b, "k", ttl)
	s.Stop()
	renewed := make(chan error)
	go func() { renewed <- b.Renew(context.Background(), h) }()
	assert.Is(t, b.Close(), nil)
	if err := <-renewed; err == nil || errors.Is(err, locking.ErrLost) {
		t.Errorf("renew during Close: %v", err)
	}
	s.Cont()
	closed := lockcheck.Fails(t.Context(), t, b, "l")
	assert.That(t, !errors.Is(closed, locking.ErrUnreachable), "%v", closed)
	lockcheck.Held(t, client(t, s.Addr()), "k")
}
