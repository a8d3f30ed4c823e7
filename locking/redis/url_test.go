package redis

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/repolock/repolock/internal/test/assert"
	"github.com/repolock/repolock/internal/test/selfsigned"
)

// TestParse: each URL is one Target, whose canonical URL is read as the same Target.
func TestParse(t *testing.T) {
	for raw, want := range map[string]string{
		"redis://h?key=k":                                   "redis://h:6379/0?key=k",
		"redis://h/?key=k":                                  "redis://h:6379/0?key=k",
		"redis://H.Example:7000/3?key=k":                    "redis://h.example:7000/3?key=k",
		"REDIS://h/0?key=k":                                 "redis://h:6379/0?key=k",
		"redis://app@h/0?key=k":                             "redis://app@h:6379/0?key=k",
		"redis://[::1]/0?key=k":                             "redis://[::1]:6379/0?key=k",
		"redis://[0:0:0:0:0:0:0:1]:7000/0?key=k":            "redis://[::1]:7000/0?key=k",
		"redis://[fe80::1%25eth0]/0?key=k":                  "redis://[fe80::1%25eth0]:6379/0?key=k",
		"redis://h/0?key=a%20b%26c":                         "redis://h:6379/0?key=a+b%26c",
		"redis://h/0?prefix=&key=k":                         "redis://h:6379/0?key=k&prefix=",
		"redis://h/0?prefix=app:lock:&key=a/b":              "redis://h:6379/0?key=a/b&prefix=app:lock:",
		"redis://h/0?prefix=bext:lock:&key=k":               "redis://h:6379/0?key=k",
		"rediss://h/0?key=k&ca=/etc/ca.pem":                 "rediss://h:6379/0?key=k&ca=/etc/ca.pem",
		"redis://h/0?password-file=/etc/secret%20one&key=k": "redis://h:6379/0?key=k&password-file=/etc/secret+one",
		"redis://h/0?key=schl%C3%BCssel":                    "redis://h:6379/0?key=schl%C3%BCssel",
	} {
		target, err := Parse(raw)
		if err != nil || target.String() != want {
			t.Errorf("%s: %q, %v, want %q", raw, target, err, want)
			continue
		}
		if again, err := Parse(target.String()); err != nil || again != target {
			t.Errorf("%s: %+v becomes %+v, %v", raw, target, again, err)
		}
	}
}

// TestParseRefuses: Parse refuses each wrong URL, in one line that quotes nothing of it.
func TestParseRefuses(t *testing.T) {
	for _, raw := range []string{
		"", "topsecret", "redis:", "redis://", "redis:h/0?key=k", "redis:///0?key=k", "http://h/0?key=k",
		"redis+unix:///s?key=k",
		"redis://h/0", "redis://h/0?key=", "redis://h/0?key=k&key=l", "redis://h/0?key", "redis://h/0?prefix=p",
		"redis://user:topsecret@h/0?key=k", "redis://:topsecret@h/0?key=k", "redis://user:@h/0?key=k", "redis://@h/0?key=k",
		"redis://user:top%2Fsecret@h/0?key=k", "redis://user:topsecret/@h/0?key=k", "redis://user%3Atopsecret@h/0?key=k",
		"redis://h/0?key=k&password=topsecret", "redis://h/0?key=k&topsecret", "redis://h/0?key=k&db=1", "redis://h/0?Key=k",
		"redis://h/0?key=k#topsecret", "redis://h/0?key=k#", "redis://h/0?key=k;topsecret", "redis://h/0?key=%zztopsecret",
		"redis://h/-1?key=k", "redis://h/00?key=k", "redis://h/x?key=k", "redis://h/0/1?key=k", "redis://h/0/?key=k",
		"redis://h//?key=k",
		"redis://h:0/0?key=k", "redis://h:70000/0?key=k", "redis://h:/0?key=k", "redis://h:x/0?key=k",
		"redis://h:6379:1/0?key=k",
		"redis://h,i/0?key=k", "redis://a b/0?key=k", "redis://[h]/0?key=k", "redis://[::1/0?key=k",
		"redis://h/0?key=a\nb", "redis://h/0?key=a%0Ab", "redis://h/0?key=%00", "redis://h/0?key=%ff",
		"redis://h/0?key=k&prefix=%07",
		"redis://h/0?key=k&ca=/x", "rediss://h/0?key=k&ca=", "redis://h/0?key=k&password-file=",
		"redis://h/0?prefix=repolock:holder:&key=k", "redis://h/0?prefix=&key=repolock:holder:k",
		"redis://h/0?key=" + strings.Repeat("k", 512),
	} {
		target, err := Parse(raw)
		if err == nil || target != (Target{}) {
			t.Errorf("%q: %+v, %v", raw, target, err)
		} else if text := err.Error(); strings.Contains(text, "secret") || strings.ContainsAny(text, "\n\r") {
			t.Errorf("%q: %s", raw, text)
		}
	}
}

// TestFilesRefused: Open refuses a password file that doesn't have one line, and a ca file without a certificate.
func TestFilesRefused(t *testing.T) {
	const password, ca = "redis://h/0?key=k&password-file=", "rediss://h/0?key=k&ca="
	large := strings.Repeat("secret", 1<<20)
	for _, c := range []struct{ query, file, body, says string }{
		{password, "none", "", "the password-file can't be read"},
		{password, ".", "", "the password-file can't be read"},
		{password, "large", large, "is larger than 1 MiB"},
		{password, "empty", "\n", "must have only one line"},
		{password, "two", "secret\nsecret\n", "must have only one line"},
		{ca, "none", "", "the ca file can't be read"},
		{ca, ".", "", "the ca file can't be read"},
		{ca, "large", large, "is larger than 1 MiB"},
		{ca, "key", "secret\n", "has no certificate in PEM"},
	} {
		path := filepath.Join(t.TempDir(), c.file)
		if c.body != "" {
			assert.OK(t, os.WriteFile(path, []byte(c.body), 0o600))
		}
		target, err := Parse(c.query + path)
		assert.OK(t, err)
		b, err := Open(target, Options{})
		assert.Need(t, b == nil && err != nil, "%s%s is opened", c.query, c.file)
		assert.That(t, strings.Contains(err.Error(), c.says) && !strings.Contains(err.Error(), "secret"), "%s%s: %v", c.query, c.file, err)
	}
}

// TestIdentity: two URLs of one lock are recognized.
func TestIdentity(t *testing.T) {
	same := []string{"redis://h/0?key=b&prefix=a:", "redis://H:6379?key=a:b&prefix=",
		"rediss://u@h/0?key=:b&prefix=a&password-file=f"}
	other := []string{"redis://h/1?key=b&prefix=a:", "redis://h:1/0?key=b&prefix=a:", "redis://i/0?key=b&prefix=a:",
		"redis://h/0?key=b"}
	identity := func(raw string) string {
		target, err := Parse(raw)
		assert.Need(t, err == nil, "%v, %v", raw, err)
		return target.Identity()
	}
	want := identity(same[0])
	for _, raw := range same {
		assert.Equal(t, identity(raw), want, raw)
	}
	for _, raw := range other {
		assert.That(t, identity(raw) != want, "%s is no %s", raw, want)
	}
}

func FuzzParse(f *testing.F) {
	f.Add("rediss://u@[::1]:1/2?key=a%20b&prefix=&ca=c&password-file=d")
	f.Fuzz(func(t *testing.T, raw string) {
		target, err := Parse(raw)
		if err != nil {
			assert.That(t, !strings.ContainsAny(err.Error(), "\r\n"), "%v", err)
			return
		}
		if again, err := Parse(target.String()); err != nil || again != target {
			t.Errorf("%q: %+v becomes %+v, %v", raw, target, again, err)
		}
	})
}

// TestFiles: a lock isn't opened if its password-file isn't one line, or if its ca file has no certificate. The error
// names the file.
func TestFiles(t *testing.T) {
	dir := t.TempDir()
	file := func(name, body string) string {
		path := filepath.Join(dir, name)
		assert.OK(t, os.WriteFile(path, []byte(body), 0o600))
		return path
	}
	cert, key := selfsigned.Write(t, dir, "server")
	for path, c := range map[string]struct{ query, words string }{
		file("one", "a\n"):            {"password-file", ""},
		file("empty", "\n"):           {"password-file", "must have only one line"},
		file("two", "a\nb\n"):         {"password-file", "must have only one line"},
		dir:                           {"password-file", "can't be read"},
		filepath.Join(dir, "none"):    {"password-file", "can't be read"},
		cert:                          {"ca", ""},
		key:                           {"ca", "has no certificate in PEM"},
		file("text", "certificate\n"): {"ca", "has no certificate in PEM"},
		filepath.Join(dir, "none.ca"): {"ca", "can't be read"},
		file("large", strings.Repeat("\n", 1<<20+1)): {"ca", "larger than 1 MiB"},
	} {
		target, err := Parse("rediss://h/0?key=k&" + c.query + "=" + path)
		assert.OK(t, err)
		b, err := Open(target, Options{})
		if b != nil {
			assert.OK(t, b.Close())
		}
		if c.words == "" {
			assert.OK(t, err)
			continue
		}
		assert.That(t, b == nil && err != nil && strings.Contains(err.Error(), c.words) && strings.Contains(err.Error(), path),
			"%s: opened: %t, %v", path, b != nil, err)
	}
}
