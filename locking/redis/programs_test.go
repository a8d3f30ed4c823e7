//go:build programs

package redis_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"github.com/repolock/repolock/internal/test/redistest"
	"github.com/repolock/repolock/internal/test/rounds"
	"github.com/repolock/repolock/locking"
	"github.com/repolock/repolock/locking/lockingtest"
	"github.com/repolock/repolock/locking/redis"
)

// TestMain: no test leaves a goroutine.
func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func acquire(t *testing.T, b *redis.Backend, key string, ttl time.Duration) locking.Handle {
	t.Helper()
	h, ok, err := b.TryLock(t.Context(), key, ttl)
	if !ok || err != nil {
		t.Fatalf("acquired %v, %v", ok, err)
	}
	return h
}

func isHeld(t *testing.T, b *redis.Backend, key string) {
	t.Helper()
	if _, ok, err := b.TryLock(t.Context(), key, ttl); ok || err != nil {
		t.Errorf("acquired %v, %v", ok, err)
	}
}

func isLost(t *testing.T, err error) {
	t.Helper()
	if !errors.Is(err, locking.ErrLost) {
		t.Errorf("%v, want ErrLost", err)
	}
}

var badKeys = []string{"", "a\nb", "\x00", "\xff", strings.Repeat("k", 513)}

// TestConformance: the backend keeps the contract on a real server.
func TestConformance(t *testing.T) {
	s := redistest.New(t)
	lockingtest.Run(t, lockingtest.Config{
		Rounds:  rounds.Fewer(1000, 100),
		New:     func(t *testing.T) locking.Backend { return client(t, s.Addr()) },
		Expires: true,
		BadKeys: badKeys,
	})
	if left := s.CLI("KEYS", "*"); left != "" {
		t.Errorf("left behind: %s", left)
	}
}

// TestConformanceOfACallersClient: so does one that uses a client with retries.
func TestConformanceOfACallersClient(t *testing.T) {
	s := redistest.New(t)
	c := goredis.NewUniversalClient(&goredis.UniversalOptions{Addrs: []string{s.Addr()}, ContextTimeoutEnabled: true})
	defer c.Close()
	lockingtest.Run(t, lockingtest.Config{
		Rounds: rounds.Fewer(1000, 100),
		New: func(t *testing.T) locking.Backend {
			b := redis.New(c, "app:", redis.Options{})
			t.Cleanup(func() { b.Close() })
			return b
		},
		Expires: true,
		BadKeys: badKeys,
	})
}

// TestPrefixAndDatabase: the prefix, the key and the database are those of the URL, and the value
// is the token alone.
func TestPrefixAndDatabase(t *testing.T) {
	s := redistest.New(t)
	for raw, where := range map[string][2]string{
		"/0?key=k":           {"0", "bext:lock:nightly"},
		"/3?key=k&prefix=a:": {"3", "a:nightly"},
		"/3?key=k&prefix=":   {"3", "nightly"},
	} {
		b := open(t, "redis://"+s.Addr()+raw, redis.Options{})
		h := acquire(t, b, "nightly", 1500*time.Microsecond+time.Minute)
		if got := s.CLI("-n", where[0], "GET", where[1]); got != h.Token() {
			t.Errorf("%s: the value is %q, want %q", raw, got, h.Token())
		}
		if left := s.CLI("-n", where[0], "PEXPIRETIME", where[1]); left < "1" {
			t.Errorf("%s: expires at %s", raw, left)
		}
		if err := b.Release(t.Context(), h); err != nil {
			t.Error(err)
		}
		if left := s.CLI("-n", where[0], "KEYS", "*"); left != "" {
			t.Errorf("%s leaves %s", raw, left)
		}
	}
}

// TestOtherProgram: a program that uses redis-cli blocks ours, and ours blocks it.
func TestOtherProgram(t *testing.T) {
	s := redistest.New(t)
	b := client(t, s.Addr())
	const compareAndDelete = `if redis.call("get",KEYS[1]) == ARGV[1] then
		return redis.call("del",KEYS[1]) else return 0 end`
	if got := s.CLI("SET", "bext:lock:k", "theirs", "NX", "PX", "60000"); got != "OK" {
		t.Fatal(got)
	}
	isHeld(t, b, "k")
	info, err := b.Inspect(t.Context(), "k")
	if err != nil || info == nil || info.Holder != "" || info.Trouble != "" || info.TTL <= 0 || info.TTL > time.Minute {
		t.Errorf("inspect: %+v, %v", info, err)
	}
	if got := s.CLI("EVAL", compareAndDelete, "1", "bext:lock:k", "theirs"); got != "1" {
		t.Errorf("their release: %s", got)
	}
	h := acquire(t, b, "k", ttl)
	if got := s.CLI("SET", "bext:lock:k", "theirs", "NX", "PX", "60000"); got != "" {
		t.Errorf("their SET beside ours: %q", got)
	}
	if got := s.CLI("EVAL", compareAndDelete, "1", "bext:lock:k", "theirs"); got != "0" {
		t.Errorf("their release of ours: %s", got)
	}
	if err := b.Release(t.Context(), h); err != nil {
		t.Error(err)
	}
	if got := s.CLI("SET", "bext:lock:k", "theirs", "NX", "PX", "60000"); got != "OK" {
		t.Errorf("their SET after ours: %q", got)
	}
}

// TestUnusualKeys: a key of another type, and one without expiry, are held and stay as they are.
func TestUnusualKeys(t *testing.T) {
	s := redistest.New(t)
	b := client(t, s.Addr())
	h := acquire(t, b, "k", ttl)
	s.CLI("DEL", "bext:lock:k")
	s.CLI("RPUSH", "bext:lock:k", "a list")
	isHeld(t, b, "k")
	isLost(t, b.Renew(t.Context(), h))
	isLost(t, b.Release(t.Context(), h))
	info, err := b.Inspect(t.Context(), "k")
	if err != nil || info == nil || info.Trouble == "" || info.Stale {
		t.Fatalf("inspect: %+v, %v", info, err)
	}
	if broken, err := b.Break(t.Context(), info, false); broken || err == nil {
		t.Errorf("broken %v, %v", broken, err)
	}
	if got := s.CLI("TYPE", "bext:lock:k"); got != "list" {
		t.Errorf("the key is %s", got)
	}
	s.CLI("SET", "bext:lock:l", "forever")
	isHeld(t, b, "l")
	if info, err := b.Inspect(t.Context(), "l"); err != nil || info == nil || info.Trouble == "" {
		t.Fatalf("inspect: %+v, %v", info, err)
	} else if broken, err := b.Break(t.Context(), info, false); !broken || err != nil {
		t.Errorf("broken %v, %v", broken, err)
	}
}

// TestHolder: Inspect returns the holder from the note, which has no token, and not after
// another program has taken the lock.
func TestHolder(t *testing.T) {
	s := redistest.New(t)
	b := open(t, "redis://"+s.Addr()+"/0?key=k", redis.Options{Holder: "nightly prune", Host: "db1", PID: 42,
		Version: "1.2"})
	before := time.Now()
	h := acquire(t, b, "k", ttl)
	if err := b.Renew(t.Context(), h); err != nil {
		t.Fatal(err)
	}
	info, err := client(t, s.Addr()).Inspect(t.Context(), "k")
	if err != nil || info == nil || info.Holder != "nightly prune" || info.Host != "db1" || info.PID != 42 ||
		info.TTL != ttl ||
		info.Acquired.Before(before.Add(-time.Second)) || info.Renewed.IsZero() || info.Revision == "" {
		t.Errorf("%+v, %v", info, err)
	}
	s.CLI("PEXPIRE", "repolock:holder:bext:lock:k", "1000")
	if err := b.Renew(t.Context(), h); err != nil {
		t.Fatal(err)
	}
	if left := s.CLI("PTTL", "repolock:holder:bext:lock:k"); len(left) < len("10000") {
		t.Errorf("the note lasts for %s ms after a renewal", left)
	}
	if note := s.CLI("GET", "repolock:holder:bext:lock:k"); strings.Contains(note+info.Revision, h.Token()) ||
		!strings.Contains(note, "db1") {
		t.Errorf("the note: %s", note)
	}
	s.CLI("SET", "bext:lock:k", "theirs", "PX", "60000")
	if info, err := b.Inspect(t.Context(), "k"); err != nil || info == nil || info.Holder != "" ||
		!info.Acquired.IsZero() {
		t.Errorf("another program's: %+v, %v", info, err)
	}
	isLost(t, b.Renew(t.Context(), h))
}

// TestTTL: the ttl is in whole milliseconds, rounded up, and at least one.
func TestTTL(t *testing.T) {
	s := redistest.New(t)
	b := client(t, s.Addr())
	for _, d := range []time.Duration{-1, 0, time.Millisecond - 1} {
		if _, ok, err := b.TryLock(t.Context(), "k", d); ok || err == nil {
			t.Errorf("%v: acquired %v, %v", d, ok, err)
		}
	}
	h := acquire(t, b, "k", time.Hour+1)
	info, err := b.Inspect(t.Context(), "k")
	if err != nil || info.TTL != time.Hour+time.Millisecond {
		t.Errorf("%+v, %v", info, err)
	}
	if err := b.Release(t.Context(), h); err != nil {
		t.Error(err)
	}
}

// TestClose: a closed backend does nothing, and leaves locks to expire.
func TestClose(t *testing.T) {
	s := redistest.New(t)
	b := client(t, s.Addr())
	h := acquire(t, b, "k", ttl)
	s.Stop()
	renewed := make(chan error)
	go func() { renewed <- b.Renew(context.Background(), h) }()
	if err := b.Close(); err != nil {
		t.Error(err)
	}
	if err := <-renewed; err == nil || errors.Is(err, locking.ErrLost) {
		t.Errorf("renew during Close: %v", err)
	}
	s.Cont()
	if _, ok, err := b.TryLock(t.Context(), "l", ttl); ok || err == nil || errors.Is(err, locking.ErrUnreachable) {
		t.Errorf("acquired %v, %v", ok, err)
	}
	becomes(t, func() bool { return strings.Count(s.CLI("CLIENT", "LIST"), "id=") == 1 }) // redis-cli's own
	isHeld(t, client(t, s.Addr()), "k")
}
