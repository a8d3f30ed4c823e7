//go:build programs

package redis

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/repolock/repolock/internal/test/assert"
	"github.com/repolock/repolock/internal/test/freeport"
	"github.com/repolock/repolock/internal/test/lockcheck"
	"github.com/repolock/repolock/internal/test/redistest"
	"github.com/repolock/repolock/internal/test/selfsigned"
	"github.com/repolock/repolock/locking"
)

// TestPrefixAndDatabase: the URL decides the prefix, the key and the database. The value is the token alone.
func TestPrefixAndDatabase(t *testing.T) {
	s := redistest.New(t)
	for raw, where := range map[string][2]string{
		"/0?key=k":           {"0", "bext:lock:nightly"},
		"/3?key=k&prefix=a:": {"3", "a:nightly"},
		"/3?key=k&prefix=":   {"3", "nightly"},
	} {
		b := open(t, "redis://"+s.Addr()+raw, Options{})
		h := lockcheck.Acquire(t, b, "nightly", 1500*time.Microsecond+time.Minute)
		assert.Equal(t, s.CLI("-n", where[0], "GET", where[1]), h.Token(), raw)
		expires := s.CLI("-n", where[0], "PEXPIRETIME", where[1])
		assert.That(t, expires >= "1", "%s: expires at %s", raw, expires)
		lockcheck.Release(t, b, h)
		assert.Equal(t, s.CLI("-n", where[0], "KEYS", "*"), "", "what %s leaves", raw)
	}
}

// TestOtherProgram: a program that uses redis-cli blocks ours, and ours blocks it.
func TestOtherProgram(t *testing.T) {
	s := redistest.New(t)
	b := client(t, s.Addr())
	const compareAndDelete = `if redis.call("get",KEYS[1]) == ARGV[1] then
		return redis.call("del",KEYS[1]) else return 0 end`
	lock := func() string { return s.CLI("SET", "bext:lock:k", "theirs", "NX", "PX", "60000") }
	release := func() string { return s.CLI("EVAL", compareAndDelete, "1", "bext:lock:k", "theirs") }
	assert.Equal(t, lock(), "OK", "their SET")
	lockcheck.Held(t, b, "k")
	info, err := b.Inspect(t.Context(), "k")
	if err != nil || info == nil || info.Holder != "" || info.Unreadable != "" || info.TTL <= 0 || info.TTL > time.Minute {
		t.Errorf("inspect: %+v, %v", info, err)
	}
	assert.Equal(t, release(), "1", "their release")
	h := lockcheck.Acquire(t, b, "k", ttl)
	assert.Equal(t, lock(), "", "their SET beside ours")
	assert.Equal(t, release(), "0", "their release of ours")
	lockcheck.Release(t, b, h)
	assert.Equal(t, lock(), "OK", "their SET")
}

// TestUnusualKeys: a key of another type, and one without expiry, are held and stay as they are.
func TestUnusualKeys(t *testing.T) {
	s := redistest.New(t)
	b := client(t, s.Addr())
	h := lockcheck.Acquire(t, b, "k", ttl)
	s.CLI("DEL", "bext:lock:k")
	s.CLI("RPUSH", "bext:lock:k", "a list")
	lockcheck.Held(t, b, "k")
	lockcheck.Lost(t, "renew", b.Renew(t.Context(), h))
	lockcheck.Lost(t, "release", b.Release(t.Context(), h))
	info := lockcheck.Seen(t, b, "k")
	assert.That(t, info.Unreadable != "" && !info.Stale, "%+v", info)
	if broken, err := b.Break(t.Context(), info, false); broken || err == nil {
		t.Errorf("broken %v, %v", broken, err)
	}
	assert.Equal(t, s.CLI("TYPE", "bext:lock:k"), "list", "the key's type")
	s.CLI("SET", "bext:lock:l", "forever")
	lockcheck.Held(t, b, "l")
	info = lockcheck.Seen(t, b, "l")
	assert.That(t, info.Unreadable != "", "%+v", info)
	lockcheck.Breaks(t, b, info, false, true)
}

// limited is a server, and a client whose user has only the permissions that docs/also/redis.md demands.
func limited(t *testing.T) (*redistest.Server, *Backend) {
	t.Helper()
	s := redistest.New(t)
	s.CLI("ACL", "SETUSER", "app", "on", ">pw", "~bext:lock:*",
		"+set", "+get", "+pttl", "+pexpire", "+del", "+eval")
	t.Setenv(PasswordVariable, "pw")
	return s, open(t, "redis://app@"+s.Addr()+"/0?key=k", Options{})
}

// TestRefusedNotes: a user who may not write notes has locks without them.
func TestRefusedNotes(t *testing.T) {
	s, b := limited(t)
	for range 3 {
		h := lockcheck.Acquire(t, b, "k", ttl)
		lockcheck.Held(t, b, "k")
		lockcheck.Renew(t, b, h)
		info := lockcheck.Seen(t, b, "k")
		assert.That(t, info.Holder == "" && info.TTL > 0, "%+v", info)
		lockcheck.Release(t, b, h)
	}
	if log := s.CLI("ACL", "LOG"); !strings.HasPrefix(log, "count\n1\n") || strings.Count(log, "count\n") != 1 {
		t.Errorf("the server's log of refusals:\n%s", log)
	}
}

// TestPassword: the password comes from the environment, or else from the file. No error has it.
func TestPassword(t *testing.T) {
	s := redistest.New(t, "--requirepass", "right one")
	dir := t.TempDir()
	file := func(name, body string) string {
		path := filepath.Join(dir, name)
		assert.OK(t, os.WriteFile(path, []byte(body), 0o600))
		return path
	}
	right, wrong := "&password-file="+file("right", "right one\n"), "&password-file="+file("wrong", "wrong one")
	for _, c := range []struct {
		query       string
		environment map[string]string
		works       bool
	}{
		{"", nil, false},
		{"", map[string]string{PasswordVariable: "right one"}, true},
		{"", map[string]string{CLIVariable: "right one"}, true},
		{"", map[string]string{PasswordVariable: "right one", CLIVariable: "wrong one"}, true},
		{"", map[string]string{PasswordVariable: "wrong one", CLIVariable: "right one"}, false},
		{right, nil, true},
		{wrong, nil, false},
		{wrong, map[string]string{CLIVariable: "right one"}, true},
	} {
		for _, name := range []string{PasswordVariable, CLIVariable} {
			t.Setenv(name, c.environment[name])
		}
		b := open(t, "redis://"+s.Addr()+"/0?key=k"+c.query, Options{})
		h, ok, err := b.TryLock(t.Context(), "k", ttl)
		if ok != c.works || c.works != (err == nil) || err != nil && (!errors.Is(err, locking.ErrPermission) ||
			strings.Contains(err.Error(), " one")) {
			t.Errorf("%+v: acquired %v, %v", c, ok, err)
		}
		if ok {
			lockcheck.Release(t, b, h)
		}
		if _, err := b.Examine(t.Context()); c.works != (err == nil) {
			t.Errorf("%+v: examined: %v", c, err)
		}
	}
}

// TestRefusedScript: if a script may not read the lock, the lock isn't known to be lost.
func TestRefusedScript(t *testing.T) {
	s, b := limited(t)
	h := lockcheck.Acquire(t, b, "k", ttl)
	s.CLI("ACL", "SETUSER", "app", "-get")
	for _, err := range []error{b.Renew(t.Context(), h), b.Release(t.Context(), h)} {
		assert.That(t, errors.Is(err, locking.ErrPermission) && !errors.Is(err, locking.ErrLost), "%v", err)
	}
	s.CLI("ACL", "SETUSER", "app", "+get")
	lockcheck.Renew(t, b, h)
}

// TestTLS: rediss checks the server's certificate against ca.
func TestTLS(t *testing.T) {
	dir := t.TempDir()
	cert, key := selfsigned.Write(t, dir, "server")
	other, _ := selfsigned.Write(t, dir, "other")
	port, err := freeport.Free()
	assert.OK(t, err)
	s := redistest.New(t, "--tls-port", strconv.Itoa(port), "--tls-cert-file", cert, "--tls-key-file", key,
		"--tls-auth-clients", "no")
	address := "127.0.0.1:" + strconv.Itoa(port)
	b := open(t, "rediss://"+address+"/0?key=k&ca="+cert, Options{})
	h := lockcheck.Acquire(t, b, "k", ttl)
	lockcheck.Renew(t, b, h)
	lockcheck.Held(t, client(t, s.Addr()), "k")
	lockcheck.Release(t, b, h)
	for _, raw := range []string{
		"rediss://" + address + "/0?key=k", "rediss://" + address + "/0?key=k&ca=" + other,
		"rediss://localhost:" + strconv.Itoa(port) + "/0?key=k&ca=" + cert, "rediss://" + s.Addr() + "/0?key=k&ca=" + cert,
		"redis://" + address + "/0?key=k",
	} {
		_, ok, err := open(t, raw, Options{}).TryLock(soon(t), "k", ttl)
		assert.That(t, !ok && err != nil && !errors.Is(err, locking.ErrLost), "%s: acquired %v, %v", raw, ok, err)
		assert.That(t, !strings.HasPrefix(raw, "rediss://"+address) || errors.Is(err, locking.ErrUnfit), "%s: %v", raw, err)
		t.Log(err)
	}
}

// TestServerKilled: a holder of a killed server gets an error that isn't ErrLost, and ErrLost once
// the server is back without its memory.
func TestServerKilled(t *testing.T) {
	s := redistest.New(t)
	b := client(t, s.Addr())
	h := lockcheck.Acquire(t, b, "k", ttl)
	s.Kill()
	for _, err := range []error{b.Renew(soon(t), h), b.Release(soon(t), h)} {
		if !errors.Is(err, locking.ErrUnreachable) || errors.Is(err, locking.ErrLost) {
			t.Errorf("of a killed server: %v", err)
		}
	}
	assert.Is(t, lockcheck.Fails(soon(t), t, b, "k"), locking.ErrUnreachable)
	s.Restart()
	lockcheck.Lost(t, "renew", b.Renew(t.Context(), h))
	lockcheck.Lost(t, "release", b.Release(t.Context(), h))
	lockcheck.Acquire(t, b, "k", ttl)
}

// TestFullServer: a full server without eviction grants no lock, but renews and releases a held one.
func TestFullServer(t *testing.T) {
	s := redistest.New(t, "--maxmemory-policy", "noeviction")
	b := client(t, s.Addr())
	h := lockcheck.Acquire(t, b, "k", ttl)
	s.CLI("CONFIG", "SET", "maxmemory", "1")
	full := lockcheck.Fails(t.Context(), t, b, "l")
	assert.That(t, !errors.Is(full, locking.ErrUnreachable), "%v", full)
	lockcheck.Renew(t, b, h)
	lockcheck.Release(t, b, h)
}
