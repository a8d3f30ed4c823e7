package postgres

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/repolock/repolock/internal/test/assert"
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
	assert.OK(t, err)
	return Open(target)
}

// TestEnvironment: variables can't change what the URL names.
func TestEnvironment(t *testing.T) {
	const raw = "postgres://bob@h:6000/app?key=k&sslmode=disable"
	environment(t, nil)
	want, err := opened(t, raw)
	assert.OK(t, err)
	environment(t, map[string]string{
		"PGHOST": "evil", "PGPORT": "1", "PGDATABASE": "evil", "PGUSER": "evil", "PGSSLMODE": "require", "PGOPTIONS": "-c x=y",
		"PGAPPNAME": "evil", "PGTARGETSESSIONATTRS": "standby", "PGCONNECT_TIMEOUT": "1", "PGTZ": "evil",
	})
	got, err := opened(t, raw)
	assert.OK(t, err)
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
	assert.OK(t, os.WriteFile(file, []byte("other:*:*:*:no\nh:5432:app:bob:from file\n"), 0o600))
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
		assert.That(t, err == nil && b.config.Password == c.want, "%s, %v: %v", c.raw, c.set, err)
	}
	environment(t, nil)
	assert.Is(t, assert.Err(opened(t, plain+"&passfile=/no/such/file")), os.ErrNotExist)
	assert.OK(t, os.WriteFile(filepath.Join(os.Getenv("HOME"), ".pgpass"), []byte("h:5432:app:bob:at home"), 0o600))
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

// TestName: the application_name has the key, the host and the pid, and fits.
func TestName(t *testing.T) {
	want := fmt.Sprint("repolock: nightly on here pid ", os.Getpid())
	assert.Equal(t, (&Backend{host: "here"}).name("nightly"), want)
	long := &Backend{host: strings.Repeat("höst", 99)}
	for _, key := range []string{"k", strings.Repeat("ö\n", 99)} {
		got := long.name(key)
		if len(got) > nameLength || !ours.MatchString(got) || strings.ContainsAny(got, "ö\n") {
			t.Errorf("%d bytes: %q", len(got), got)
		}
	}
}

// TestSessionSettings: the server must not give up on a peer before a holder does, and does so soon
// afterwards.
func TestSessionSettings(t *testing.T) {
	for _, ttl := range []time.Duration{time.Millisecond, time.Second, 3 * time.Second, time.Minute, 10 * time.Minute, 1000 * time.Hour} {
		set := sessionSettings(ttl)
		seconds := func(name string) time.Duration {
			d, err := time.ParseDuration(set["tcp_"+name] + "s")
			assert.That(t, err == nil && d > 0 && d <= 32767*time.Second, "%v: %s %v %v", ttl, name, d, err)
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
			assert.That(t, set[name] == "0", "%v: %s %q", ttl, name, set[name])
		}
	}
}

// TestParse: a URL has one canonical form.
func TestParse(t *testing.T) {
	plain := Target{Host: "db.example.com", Port: 5432, Database: "app", Key: "nightly"}
	with := func(change func(*Target)) Target {
		t := plain
		change(&t)
		return t
	}
	for _, c := range []struct {
		raw, canonical string
		want           Target
	}{
		{"postgres://db.example.com/app?key=nightly", "", plain},
		{"PostgreSQL://DB.example.com:5432/app?key=nightly", "postgres://db.example.com/app?key=nightly", plain},
		{"postgres://bob@db.example.com:6000/app?key=nightly", "", with(func(t *Target) { t.User, t.Port = "bob", 6000 })},
		{"postgres://b%40b@db.example.com/a%2Fb?key=nightly", "", with(func(t *Target) { t.User, t.Database = "b@b", "a/b" })},
		{"postgres://db.example.com/app?key=a+b%20c%26%23/:%25", "postgres://db.example.com/app?key=a%2Bb%20c%26%23/:%25", with(func(t *Target) { t.Key = "a+b c&#/:%" })},
		{"postgres://[::1]/app?key=nightly", "", with(func(t *Target) { t.Host = "::1" })},
		{"postgres://[0:0::1]:6000/app?key=nightly", "postgres://[::1]:6000/app?key=nightly", with(func(t *Target) { t.Host, t.Port = "::1", 6000 })},
		{"postgres://[fe80::1%25eth0]/app?key=nightly", "", with(func(t *Target) { t.Host = "fe80::1%eth0" })},
		{"postgres:///app?host=/run/postgresql&key=nightly", "", with(func(t *Target) { t.Host = "/run/postgresql" })},
		{"postgres://bob@/app?key=nightly&port=6000&host=%2Frun/a%20b", "postgres://bob@/app?host=/run/a%20b&port=6000&key=nightly",
			with(func(t *Target) { t.User, t.Host, t.Port = "bob", "/run/a b", 6000 })},
		{"postgres://db.example.com/app?sslmode=verify-full&sslrootcert=/ca&sslcert=c&sslkey=k&passfile=p&pooler=session&key=nightly",
			"postgres://db.example.com/app?key=nightly&passfile=p&pooler=session&sslcert=c&sslkey=k&sslmode=verify-full&sslrootcert=/ca",
			with(func(t *Target) {
				t.SSLMode, t.SSLRootCert, t.SSLCert, t.SSLKey, t.Passfile, t.SessionPooler = "verify-full", "/ca", "c", "k", "p", true
			})},
	} {
		got, err := Parse(c.raw)
		assert.That(t, err == nil && got == c.want, "%s: %+v, %v", c.raw, got, err)
		canonical := c.canonical
		if canonical == "" {
			canonical = c.raw
		}
		assert.That(t, got.String() == canonical, "%s: canonical %s", c.raw, got)
		if again, err := Parse(got.String()); again != got || err != nil {
			t.Errorf("%s: again %+v, %v", c.raw, again, err)
		}
	}
}

// TestBadURL: what isn't understood is refused in one line, which has no password.
func TestBadURL(t *testing.T) {
	for _, raw := range []string{
		"", "postgres", "postgres:", "postgres:host/app?key=k", "mysql://h/app?key=k", "//h/app?key=k",
		"postgres:///app?key=k", "postgres://h?key=k", "postgres://h/?key=k", "postgres://h/a/b?key=k", "postgres://h/app/?key=k",
		"postgres://h/app", "postgres://h/app?", "postgres://h/app?key", "postgres://h/app?key=", "postgres://h/app?key=a&key=b",
		"postgres://h/app?Key=k", "postgres://h/app?key=k&key2=topsecret",
		"postgres://h/app?key=k#f", "postgres://h/app?key=k#", "postgres://h/app?key=%zz", "postgres://h/app?key=%00", "postgres://h/app?key=%0a",
		"postgres://h/app?key=%ff", "postgres://h/a%00pp?key=k", "postgres://h/app?key=a\nb", "postgres://h/app?key=k\x7f",
		"postgres://h/app?key=" + strings.Repeat("k", 513),
		"postgres://bob:topsecret@h/app?key=k", "postgres://bob:@h/app?key=k", "postgres://:topsecret@h/app?key=k", "postgres://@h/app?key=k",
		"postgres://bob:top/secret@h/app?key=k", "postgres://bob:top%secret@h/app?key=k", "postgres://bob:topsecret@h:x/app?key=k",
		"postgres://h/app?key=k&password=topsecret", "postgres://h/app?key=k&sslpassword=topsecret", "postgres://h/app?key=k&topsecret",
		"postgres://bob@evil@h/app?key=k", "postgres://a,b/app?key=k", "postgres://a:1,b:2/app?key=k", "postgres://h h/app?key=k", "postgres://%2Frun/app?key=k",
		"postgres://h:0/app?key=k", "postgres://h:65536/app?key=k", "postgres://h:/app?key=k", "postgres://h:x/app?key=k",
		"postgres://h/app?key=k&port=5432", "postgres://h/app?key=k&host=/run", "postgres:///app?key=k&host=run", "postgres:///app?key=k&host=b.example.com",
		"postgres:///app?key=k&host=/run,/tmp", "postgres://:5433/app?key=k&host=/run", "postgres:///app?key=k&host=/run&port=x",
		"postgres://h/app?key=k&sslmode=maybe", "postgres://h/app?key=k&pooler=transaction", "postgres://h/app?key=k&passfile=",
		"postgres://h/app?key=k&target_session_attrs=any", "postgres://h/app?key=k&options=-c", "postgres://h/app?key=k&service=s",
	} {
		target, err := Parse(raw)
		if err == nil {
			t.Errorf("%q: %+v, %v", raw, target, err)
			continue
		}
		if target != (Target{}) || strings.Contains(err.Error(), "secret") || strings.ContainsAny(err.Error(), "\n\x00\x7f") {
			t.Errorf("%q: %+v, %v", raw, target, err)
		}
	}
}

// FuzzParse: a URL that is understood has a canonical form, which is understood the same.
func FuzzParse(f *testing.F) {
	f.Add("postgres://bob@[fe80::1%25eth0]:5/a%2Fb?key=a+b&sslmode=require")
	f.Add("postgres:///app?host=/run&port=6000&key=%C3%A9")
	f.Fuzz(func(t *testing.T, raw string) {
		target, err := Parse(raw)
		if err != nil {
			return
		}
		if again, err := Parse(target.String()); again != target || err != nil {
			t.Errorf("%q: %+v is %s is %+v, %v", raw, target, target, again, err)
		}
	})
}

// TestNoConnection: the error of a server that can't be reached has no words of Go's dialer.
func TestNoConnection(t *testing.T) {
	environment(t, nil)
	target, err := Parse("postgres://user@127.0.0.1:1/db?sslmode=disable&key=k")
	assert.OK(t, err)
	b, err := Open(target)
	assert.OK(t, err)
	_, _, err = b.TryLock(t.Context(), "k", time.Minute)
	assert.Says(t, err, locking.ErrUnreachable, "no connection: connection refused")
}
