//go:build unix

package beads

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"unicode/utf8"

	"github.com/repolock/repolock/internal/fault"
	"github.com/repolock/repolock/internal/test/assert"
	"github.com/repolock/repolock/internal/test/beadsdaemon"
	"github.com/repolock/repolock/internal/test/lockcheck"
	"github.com/repolock/repolock/locking"
)

// replaced returns a client of a directory with one lock, and what the client has seen of it.
func replaced(t *testing.T) (*Backend, *content) {
	t.Helper()
	b, err := Open(t.TempDir(), Options{})
	assert.OK(t, err)
	assert.OK(t, os.WriteFile(b.path, []byte("old"), 0o600))
	c, err := b.read()
	assert.Need(t, c != nil && err == nil, "%v, %v", c, err)
	return b, c
}

// TestRemovePutsBack: remove puts a lock back that has taken the place of the one that was seen,
// whether it is another file or the same file with another content.
func TestRemovePutsBack(t *testing.T) {
	for name, body := range map[string]string{"overwritten": "odd", "replaced": "old"} {
		b, c := replaced(t)
		var kept []string
		if name == "replaced" {
			kept = []string{"kept"}
			if err := os.Rename(b.path, filepath.Join(b.dir, "kept")); err != nil { // with its inode number
				t.Fatal(err)
			}
		}
		assert.OK(t, os.WriteFile(b.path, []byte(body), 0o600))
		was, _ := os.Lstat(b.path)
		if removed, err := b.remove(c.File); removed || err != nil {
			t.Errorf("%s: removed %v, %v", name, removed, err)
		}
		if is, err := os.Lstat(b.path); err != nil || !os.SameFile(was, is) {
			t.Errorf("%s: it isn't back: %v", name, err)
		}
		left(t, b.dir, append([]string{Key}, kept...)...)
	}
}

// TestPutBackKeepsBoth: if a third lock has taken the place, both files stay, and the error names
// them.
func TestPutBackKeepsBoth(t *testing.T) {
	b, _ := replaced(t)
	aside := b.temp()
	assert.OK(t, os.WriteFile(aside, []byte("aside"), 0o600))
	err := putBack(aside, b.path)
	assert.Is(t, err, os.ErrExist)
	left(t, b.dir, Key, tempPrefix)
	assert.Equal(t, lockText(t, b.dir), "old", "the lock")
}

// TestParse: a URL names a .beads directory, or the directory that has one. Its text is absolute,
// and parses to the same target.
func TestParse(t *testing.T) {
	dir, err := filepath.EvalSymlinks(t.TempDir())
	assert.OK(t, err)
	t.Chdir(dir)
	own := filepath.Join(dir, ".beads")
	for raw, want := range map[string]string{
		"beads:.beads":            own,
		"beads:.beads/":           own,
		"beads:.":                 own,
		"BEADS:./.beads/.":        own,
		"beads:sub/..":            own,
		"beads:" + dir:            own,
		"beads:" + own:            own,
		"beads:a repo%20/x":       filepath.Join(dir, "a repo%20/x/.beads"),
		"beads:.beads/.beads":     filepath.Join(own, ".beads"),
		"beads:my.beads":          filepath.Join(dir, "my.beads/.beads"),
		"beads:.beads/dolt":       filepath.Join(own, "dolt/.beads"),
		"beads:beads:x":           filepath.Join(dir, "beads:x/.beads"),
		"beads:user:pass@host":    filepath.Join(dir, "user:pass@host/.beads"),
		"beads:" + own + "/../é/": filepath.Join(dir, "é/.beads"),
	} {
		target, err := Parse(raw)
		if err != nil || target.Dir != want || target.String() != "beads:"+want {
			t.Errorf("%q: %+v, %v, want %s", raw, target, err, want)
		}
		if again, err := Parse(target.String()); err != nil || again != target {
			t.Errorf("%q: %+v, then %+v, %v", raw, target, again, err)
		}
	}
	for _, raw := range []string{
		"", "beads", "beads:", "bead:x", ".beads", "beads://host/x", "beads:///srv", "beads:x?settle=5s", "beads:x#y",
		"beads:a\nb", "beads:a\x00b", "beads:\x1b[31m", "beads:\xff", "beads:a\u202eb", " beads:x",
	} {
		target, err := Parse(raw)
		if err == nil || target != (Target{}) || strings.ContainsAny(err.Error(), "\n\x00\x1b") ||
			!utf8.ValidString(err.Error()) {
			t.Errorf("%q: %+v, %v", raw, target, err)
		}
	}
	left(t, ".")
}

// malformed are files that aren't valid locks, and Inspect's trouble. DEAD, HOST and TIME become values with
// which a valid lock would be stale.
var malformed = []struct{ body, trouble string }{
	{"", "unexpected end of JSON input"},
	{`{"holder": "x", "pid": DEAD, "hostname": "HOST", "started_at": "TIME"`, "unexpected end of JSON input"},
	{"lock", "invalid character"},
	{"\x00\xff", "invalid character"},
	{`{"holder": "x", "pid": DEAD, "hostname": "HOST", "started_at": "TIME"}{}`, "invalid character"},
	{"{\"holder\": \"x\ny\", \"pid\": DEAD, \"hostname\": \"HOST\", \"started_at\": \"TIME\"}", "invalid character"},
	{"null", "it has no holder"},
	{"[]", "it is a JSON array"},
	{`{"pid": DEAD, "hostname": "HOST", "started_at": "TIME"}`, "it has no holder"},
	{`{"holder": null, "pid": DEAD, "hostname": "HOST", "started_at": "TIME"}`, "it has no holder"},
	{`{"holder": 5, "pid": DEAD, "hostname": "HOST", "started_at": "TIME"}`, "its holder is a JSON number"},
	{`{"holder": "x", "hostname": "HOST", "started_at": "TIME"}`, "0 is no pid"},
	{`{"holder": "x", "pid": -DEAD, "hostname": "HOST", "started_at": "TIME"}`, "is no pid"},
	{`{"holder": "x", "pid": 1099511627776, "hostname": "HOST", "started_at": "TIME"}`, "1099511627776 is no pid"},
	{`{"holder": "x", "pid": DEAD.5, "hostname": "HOST", "started_at": "TIME"}`, "its pid is a JSON number"},
	{`{"holder": "x", "pid": "DEAD", "hostname": "HOST", "started_at": "TIME"}`, "its pid is a JSON string"},
	{`{"holder": "x", "pid": DEAD, "started_at": "TIME"}`, "it has no hostname"},
	{`{"holder": "x", "pid": DEAD, "hostname": {}, "started_at": "TIME"}`, "its hostname is a JSON object"},
	{`{"holder": "x", "pid": DEAD, "hostname": "HOST"}`, "it has no started_at"},
	{`{"holder": "x", "pid": DEAD, "hostname": "HOST", "started_at": "yesterday"}`, "its started_at isn't a time"},
	{`{"holder": "x", "pid": DEAD, "hostname": "HOST", "started_at": 1761393600}`, "its started_at isn't a time"},
	{`{"holder": "x", "pid": DEAD, "hostname": "HOST", "started_at": "0001-01-01T00:00:00Z"}`, "it has no started_at"},
	{`{"holder": "x", "pid": ` + strings.Repeat("1", 300) + `}`, "its pid is a JSON number 111"},
	{strings.Repeat("[", 1<<15), "exceeded max depth"},
	{strings.Repeat(" ", 1<<17), "it is larger than 65536 bytes"},
}

// TestMalformedIsHeld: what isn't a lock is held, is named in one line, and stays as it is. A
// person can break it. Cleanup and a break of stale locks don't. The daemon skips the database,
// except for a pid beyond 32 bits, which the document doesn't refuse.
func TestMalformedIsHeld(t *testing.T) {
	dead := ended(t)
	host, _ := os.Hostname()
	fill := strings.NewReplacer("DEAD", fmt.Sprint(dead), "HOST", host, "TIME", "2025-10-25T12:00:00Z")
	for _, c := range malformed {
		t.Run(fmt.Sprintf("%.80q", c.body), func(t *testing.T) {
			dir := t.TempDir()
			body := write(t, dir, fill.Replace(c.body))
			b := client(t, dir, Options{})
			lockcheck.Held(t, b, Key)
			assert.Is(t, b.Cleanup(t.Context()), nil, "cleanup")
			seen := lockcheck.Seen(t, b, Key)
			assert.That(t, !seen.Stale && !seen.Acquired.IsZero(), "%+v", seen)
			path := filepath.Join(dir, Key)
			if about, ok := strings.CutPrefix(seen.Unreadable, path+": "); !ok || !strings.Contains(about, c.trouble) ||
				strings.ContainsAny(about, "\n\x00") || !utf8.ValidString(about) || len(about) > 250 {
				t.Errorf("the trouble: %q, want %q", seen.Unreadable, c.trouble)
			}
			lockcheck.Breaks(t, b, seen, true, false)
			assert.That(t, lockText(t, dir) == body, "it was changed")
			if strings.HasPrefix(seen.Unreadable, path+": malformed") && !strings.Contains(seen.Unreadable, "1099511627776") {
				if skip, _, err := (beadsdaemon.Daemon{}).ShouldSkipDatabase(dir); !skip || err == nil {
					t.Errorf("the daemon: %v, %v", skip, err)
				}
			}
			lockcheck.Breaks(t, b, seen, false, true)
			lockcheck.Acquire(t, b, Key, ttl)
		})
	}
}

// TestIrregularIsHeld: a pipe, a link and a directory are held, and not even broken.
func TestIrregularIsHeld(t *testing.T) {
	for name, create := range map[string]func(string) error{
		"pipe":      func(path string) error { return syscall.Mkfifo(path, 0o600) },
		"link":      func(path string) error { return os.Symlink("nowhere", path) },
		"directory": func(path string) error { return os.Mkdir(path, 0o700) },
	} {
		dir := t.TempDir()
		assert.OK(t, create(filepath.Join(dir, Key)))
		b := client(t, dir, Options{})
		lockcheck.Held(t, b, Key)
		seen := lockcheck.Seen(t, b, Key)
		assert.That(t, seen.Unreadable != "", "%s: %+v", name, seen)
		if ok, err := b.Break(t.Context(), seen, false); ok || err == nil || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: broken %v, %v", name, ok, err)
		}
	}
}

// TestBreakComparesTheRevision: Break removes nothing but the file that was seen, and a lock that
// was malformed then only if it is the same.
func TestBreakComparesTheRevision(t *testing.T) {
	const malformed = `{"holder": "vc-`
	for name, change := range map[string]func(t *testing.T, path string) error{
		"rewritten later": func(t *testing.T, path string) error {
			tick(t, path)
			return os.WriteFile(path, []byte(malformed), 0o644)
		},
		"other bytes, same time": func(t *testing.T, path string) error {
			was, err := os.Stat(path)
			assert.OK(t, err)
			return fault.Join(os.WriteFile(path, []byte(`{"holder": "xx-`), 0o644), os.Chtimes(path, was.ModTime(), was.ModTime()))
		},
		"other file, same bytes and time": func(t *testing.T, path string) error {
			was, err := os.Stat(path)
			assert.OK(t, err)
			return fault.Join(os.WriteFile(path+".x", []byte(malformed), 0o644),
				os.Chtimes(path+".x", was.ModTime(), was.ModTime()), os.Rename(path+".x", path))
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			write(t, dir, malformed)
			b := client(t, dir, Options{})
			before := lockcheck.Seen(t, b, Key)
			assert.OK(t, change(t, filepath.Join(dir, Key)))
			lockcheck.Breaks(t, b, before, false, false)
			after := lockcheck.Seen(t, b, Key)
			lockcheck.Breaks(t, b, &locking.Info{Key: Key}, false, false)
			lockcheck.Breaks(t, b, after, false, true)
			lockcheck.Breaks(t, b, after, false, false)
		})
	}
}
