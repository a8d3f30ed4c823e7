//go:build programs

package redis_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/repolock/repolock/internal/test/redistest"
	"github.com/repolock/repolock/locking"
	"github.com/repolock/repolock/locking/redis"
)

// limited is a server whose user app, with the password pw, may do what docs/locks-redis.md demands,
// and nothing else.
func limited(t *testing.T) *redistest.Server {
	t.Helper()
	s := redistest.New(t)
	s.CLI("ACL", "SETUSER", "app", "on", ">pw", "~bext:lock:*",
		"+set", "+get", "+pttl", "+pexpire", "+del", "+eval", "+evalsha")
	return s
}

// TestRefusedNotes: a user who may not write notes has locks without them.
func TestRefusedNotes(t *testing.T) {
	s := limited(t)
	b := open(t, "redis://app@"+s.Addr()+"/0?key=k", redis.Options{Getenv: func(string) string { return "pw" }})
	for range 3 {
		h := acquire(t, b, "k", ttl)
		isHeld(t, b, "k")
		if err := b.Renew(t.Context(), h); err != nil {
			t.Error(err)
		}
		if info, err := b.Inspect(t.Context(), "k"); err != nil || info == nil || info.Holder != "" || info.TTL == 0 {
			t.Errorf("inspect: %+v, %v", info, err)
		}
		if err := b.Release(t.Context(), h); err != nil {
			t.Error(err)
		}
	}
	if log := s.CLI("ACL", "LOG"); !strings.HasPrefix(log, "count\n1\n") || strings.Count(log, "count\n") != 1 {
		t.Errorf("the server's log of refusals:\n%s", log)
	}
}

// TestPassword: the password is that of the environment or of the file, and no error has it.
func TestPassword(t *testing.T) {
	s := redistest.New(t, "--requirepass", "right one")
	dir := t.TempDir()
	file := func(name, body string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(body), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	right, wrong := "&password-file="+file("right", "right one\n"), "&password-file="+file("wrong", "wrong one")
	for _, c := range []struct {
		query       string
		environment map[string]string
		works       bool
	}{
		{"", nil, false},
		{"", map[string]string{redis.PasswordVariable: "right one"}, true},
		{"", map[string]string{redis.CLIVariable: "right one"}, true},
		{"", map[string]string{redis.PasswordVariable: "right one", redis.CLIVariable: "wrong one"}, true},
		{"", map[string]string{redis.PasswordVariable: "wrong one", redis.CLIVariable: "right one"}, false},
		{right, nil, true},
		{wrong, nil, false},
		{wrong, map[string]string{redis.CLIVariable: "right one"}, true},
	} {
		b := open(t, "redis://"+s.Addr()+"/0?key=k"+c.query,
			redis.Options{Getenv: func(name string) string { return c.environment[name] }})
		h, ok, err := b.TryLock(t.Context(), "k", ttl)
		if ok != c.works || c.works != (err == nil) || err != nil && (!errors.Is(err, locking.ErrPermission) ||
			strings.Contains(err.Error(), " one")) {
			t.Errorf("%+v: acquired %v, %v", c, ok, err)
		}
		if ok {
			if err := b.Release(t.Context(), h); err != nil {
				t.Error(err)
			}
		}
		if _, err := b.Examine(t.Context()); c.works != (err == nil) {
			t.Errorf("%+v: examined: %v", c, err)
		}
	}
	for _, query := range []string{"&password-file=" + file("empty", "\n"), "&password-file=" + file("two", "a\nb\n"),
		"&password-file=" + dir, "&password-file=" + dir + "/none"} {
		target, err := redis.Parse("redis://h/0?key=k" + query)
		if err != nil {
			t.Fatal(err)
		}
		if b, err := redis.Open(target, redis.Options{Getenv: func(string) string { return "" }}); b != nil || err == nil {
			t.Errorf("%s is opened: %v", query, err)
		}
	}
}

// TestTokensAreSecret: an error that quotes the arguments of a command has no token.
func TestTokensAreSecret(t *testing.T) {
	s := redistest.New(t, "--rename-command", "SET", "", "--rename-command", "EVALSHA", "", "--rename-command",
		"EVAL", "")
	b := client(t, s.Addr())
	_, ok, err := b.TryLock(t.Context(), "k", ttl)
	if ok || !errors.Is(err, locking.ErrUnfit) || strings.Contains(err.Error(), "beginning") {
		t.Errorf("acquired %v, %v", ok, err)
	}
	h := locking.NewHandle("k", ttl)
	for _, err := range []error{b.Renew(t.Context(), h), b.Release(t.Context(), h)} {
		if !errors.Is(err, locking.ErrUnfit) || errors.Is(err, locking.ErrLost) || strings.Contains(err.Error(), h.Token()) {
			t.Errorf("%v", err)
		}
	}
}

// TestRefusedScript: if a script may not read the lock, the lock isn't known to be lost.
func TestRefusedScript(t *testing.T) {
	s := limited(t)
	b := open(t, "redis://app@"+s.Addr()+"/0?key=k", redis.Options{Getenv: func(string) string { return "pw" }})
	h := acquire(t, b, "k", ttl)
	s.CLI("ACL", "SETUSER", "app", "-get")
	for _, err := range []error{b.Renew(t.Context(), h), b.Release(t.Context(), h)} {
		if !errors.Is(err, locking.ErrPermission) || errors.Is(err, locking.ErrLost) {
			t.Error(err)
		}
	}
	s.CLI("ACL", "SETUSER", "app", "+get")
	if err := b.Renew(t.Context(), h); err != nil {
		t.Error(err)
	}
}

// TestPasswordIsSecret: an error has no password, whatever the server answers.
func TestPasswordIsSecret(t *testing.T) {
	address := fake(t, func(c []string) string { return "-ERR what is " + strings.Join(c, " ") + "?\r\n" })
	b := open(t, "redis://"+address+"/0?key=k", redis.Options{Getenv: func(string) string { return "topsecret" }})
	if _, ok, err := b.TryLock(t.Context(), "k", ttl); ok || err == nil || strings.Contains(err.Error(), "secret") {
		t.Errorf("acquired %v, %v", ok, err)
	}
}
