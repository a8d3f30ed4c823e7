package postgres

import (
	"errors"
	"strings"
	"testing"

	"github.com/repolock/repolock/locking"
)

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
		if err != nil || got != c.want {
			t.Errorf("%s: %+v, %v", c.raw, got, err)
		}
		canonical := c.canonical
		if canonical == "" {
			canonical = c.raw
		}
		if got.String() != canonical {
			t.Errorf("%s: canonical %s", c.raw, got)
		}
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
		"postgres://h/app?key=k&", "postgres://h/app?&key=k", "postgres://h/app?Key=k", "postgres://h/app?key=k&key2=topsecret",
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
		if err == nil || !errors.Is(err, ErrURL) && !errors.Is(err, locking.ErrKey) {
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
