package postgres

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/repolock/repolock/locking"
)

// environment removes the variables of libpq, and sets some.
func environment(t *testing.T, set map[string]string) {
	t.Helper()
	for _, pair := range os.Environ() {
		if name, _, _ := strings.Cut(pair, "="); strings.HasPrefix(name, "PG") {
			t.Setenv(name, "")
		}
	}
	t.Setenv("HOME", t.TempDir())
	t.Setenv(PasswordVariable, "")
	for name, value := range set {
		t.Setenv(name, value)
	}
}

func opened(t *testing.T, raw string) (*Backend, error) {
	t.Helper()
	target, err := Parse(raw)
	if err != nil {
		t.Fatal(err)
	}
	return Open(target, Options{})
}

// TestEnvironment: variables can't change what the URL names.
func TestEnvironment(t *testing.T) {
	const raw = "postgres://bob@h:6000/app?key=k&sslmode=disable"
	environment(t, nil)
	want, err := opened(t, raw)
	if err != nil {
		t.Fatal(err)
	}
	environment(t, map[string]string{
		"PGHOST": "evil", "PGPORT": "1", "PGDATABASE": "evil", "PGUSER": "evil", "PGSSLMODE": "require", "PGOPTIONS": "-c x=y",
		"PGAPPNAME": "evil", "PGTARGETSESSIONATTRS": "standby", "PGCONNECT_TIMEOUT": "1", "PGTZ": "evil",
	})
	got, err := opened(t, raw)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []*Backend{want, got} {
		if c.config.Host != "h" || c.config.Port != 6000 || c.config.Database != "app" || c.config.User != "bob" || c.config.TLSConfig != nil ||
			len(c.config.Fallbacks) != 0 || len(c.config.RuntimeParams) != 0 || c.config.ConnectTimeout != 0 || c.config.ValidateConnect != nil {
			t.Errorf("%+v", c.config)
		}
	}
	environment(t, map[string]string{"PGSERVICE": "evil"})
	if _, err := opened(t, raw); err == nil || !strings.Contains(err.Error(), "PGSERVICE") {
		t.Errorf("with a service: %v", err)
	}
}

// TestFromEnvironment: what the URL doesn't say comes from libpq's variables.
func TestFromEnvironment(t *testing.T) {
	environment(t, map[string]string{"PGUSER": "carol", "PGSSLMODE": "verify-full"})
	b, err := opened(t, "postgres://h/app?key=k")
	if err != nil || b.config.User != "carol" || b.config.TLSConfig == nil || b.config.TLSConfig.ServerName != "h" || len(b.config.Fallbacks) != 0 {
		t.Errorf("%+v, %v", b, err)
	}
}

// TestPassword: the password comes from the first of our variable, libpq's variable, a file.
func TestPassword(t *testing.T) {
	file := filepath.Join(t.TempDir(), "pass")
	if err := os.WriteFile(file, []byte("other:*:*:*:no\nh:5432:app:bob:from file\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	plain := "postgres://bob@h/app?key=k"
	for _, c := range []struct {
		raw, want string
		set       map[string]string
	}{
		{plain, "", nil},
		{plain, "libpq's", map[string]string{"PGPASSWORD": "libpq's", "PGPASSFILE": file}},
		{plain, "ours", map[string]string{PasswordVariable: "ours", "PGPASSWORD": "libpq's"}},
		{plain, "from file", map[string]string{"PGPASSFILE": file}},
		{plain + "&passfile=" + file, "from file", map[string]string{"PGPASSFILE": "/no/such/file"}},
	} {
		environment(t, c.set)
		b, err := opened(t, c.raw)
		if err != nil || b.config.Password != c.want {
			t.Errorf("%s, %v: %v", c.raw, c.set, err)
		}
	}
	environment(t, nil)
	if _, err := opened(t, plain+"&passfile=/no/such/file"); err == nil {
		t.Error("a passfile that isn't there is accepted")
	}
	if err := os.WriteFile(filepath.Join(os.Getenv("HOME"), ".pgpass"), []byte("h:5432:app:bob:at home"), 0o600); err != nil {
		t.Fatal(err)
	}
	if b, err := opened(t, plain); err != nil || b.config.Password != "at home" {
		t.Errorf("%v", err)
	}
}

// TestOpenErrors: an error of a file has no password.
func TestOpenErrors(t *testing.T) {
	environment(t, map[string]string{"PGPASSWORD": "topsecret", PasswordVariable: "topsecret"})
	_, err := opened(t, "postgres://h/app?key=k&sslmode=verify-full&sslrootcert=/no/such/file")
	if err == nil || strings.Contains(err.Error(), "secret") || strings.Contains(err.Error(), "\n") || !strings.Contains(err.Error(), "/no/such/file") {
		t.Error(err)
	}
}

// TestName: the name that others see fits, whatever the key is, and host and pid are in it.
func TestName(t *testing.T) {
	b := &Backend{options: Options{Holder: "repolock", Host: "here", PID: 4711}}
	if got := b.name("nightly"); got != "repolock: nightly on here pid 4711" {
		t.Error(got)
	}
	b.options = Options{Holder: strings.Repeat("repolöck", 9), Host: strings.Repeat("host", 99), PID: 4194304}
	for _, key := range []string{"k", strings.Repeat("ö\n", 99)} {
		got := b.name(key)
		if len(got) > nameLength || !ours.MatchString(got) || strings.ContainsAny(got, "ö\n") {
			t.Errorf("%d bytes: %q", len(got), got)
		}
	}
}

// TestSessionSettings: the server must not give up on a peer before a holder does, and does so soon
// afterwards.
func TestSessionSettings(t *testing.T) {
	for _, ttl := range []time.Duration{time.Millisecond, time.Second, 3 * time.Second, time.Minute, 10 * time.Minute, 1000 * time.Hour} {
		set := make(map[string]string)
		for _, s := range sessionSettings(ttl, 17) {
			set[s.name] = s.value
		}
		seconds := func(name string) time.Duration {
			d, err := time.ParseDuration(set["tcp_"+name] + "s")
			if err != nil || d <= 0 || d > 32767*time.Second {
				t.Errorf("%v: %s %v %v", ttl, name, d, err)
			}
			return d
		}
		idle, interval, count := seconds("keepalives_idle"), seconds("keepalives_interval"), seconds("keepalives_count")
		user, err := time.ParseDuration(set["tcp_user_timeout"] + "ms")
		if err != nil || user < min(ttl, maxSilence) || user > max(ttl, time.Second) {
			t.Errorf("%v: %v %v", ttl, user, err)
		}
		// A system without tcp_user_timeout counts probes.
		counted := idle + interval*(count/time.Second)
		if ttl <= time.Hour && (counted < ttl || counted > max(ttl+interval, 2*time.Second)) {
			t.Errorf("%v: counted %v", ttl, counted)
		}
		for _, name := range []string{"statement_timeout", "lock_timeout", "idle_session_timeout", "idle_in_transaction_session_timeout", "transaction_timeout"} {
			if set[name] != "0" {
				t.Errorf("%v: %s %q", ttl, name, set[name])
			}
		}
	}
	older := make(map[string]string)
	for _, s := range sessionSettings(time.Minute, 11) {
		older[s.name] = s.value
	}
	for _, name := range []string{"tcp_user_timeout", "idle_session_timeout", "transaction_timeout"} {
		if _, set := older[name]; set {
			t.Errorf("PostgreSQL 11 doesn't know %s", name)
		}
	}
}

func TestRelease(t *testing.T) {
	for version, want := range map[string]int{"15.18 (Debian 15.18-0+deb12u1)": 15, "18beta1": 18, "9.6.1": 9, "": 0, "x": 0} {
		if got := release(version); got != want {
			t.Errorf("%q: %d", version, got)
		}
	}
}

// TestTTLIsPositive: a lock that is over before it begins isn't acquired.
func TestTTLIsPositive(t *testing.T) {
	environment(t, nil)
	b, err := opened(t, "postgres://127.0.0.1:1/app?key=k")
	if err != nil {
		t.Fatal(err)
	}
	if _, ok, err := b.TryLock(t.Context(), "k", 0); ok || err == nil || errors.Is(err, locking.ErrUnreachable) {
		t.Errorf("%v, %v", ok, err)
	}
}
