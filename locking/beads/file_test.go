//go:build unix

package beads

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"unicode/utf8"
)

// replaced returns a client of a directory with one lock, and what the client has seen of it.
func replaced(t *testing.T) (*Backend, *content) {
	t.Helper()
	b, err := New(t.TempDir(), Options{})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(b.path, []byte("old"), 0o600); err != nil {
		t.Fatal(err)
	}
	c, err := b.read()
	if c == nil || err != nil {
		t.Fatal(c, err)
	}
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
		if err := os.WriteFile(b.path, []byte(body), 0o600); err != nil {
			t.Fatal(err)
		}
		was, _ := os.Lstat(b.path)
		if removed, err := b.remove(c); removed || err != nil {
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
	if err := os.WriteFile(aside, []byte("aside"), 0o600); err != nil {
		t.Fatal(err)
	}
	err := putBack(aside, b.path)
	if !errors.Is(err, os.ErrExist) {
		t.Error(err)
	}
	left(t, b.dir, Key, tempPrefix)
	if body, _ := os.ReadFile(b.path); string(body) != "old" {
		t.Errorf("the lock is %q now", body)
	}
}

// TestLinkReplacesNothing: a lock that another tool creates after TryLock has looked stays, and
// TryLock leaves no file beside it.
func TestLinkReplacesNothing(t *testing.T) {
	b, _ := replaced(t)
	if mine, err := b.link(); mine != nil || err != nil {
		t.Errorf("%+v, %v", mine, err)
	}
	if body, _ := os.ReadFile(b.path); string(body) != "old" {
		t.Errorf("the lock is %q now", body)
	}
	left(t, b.dir, Key)
}

// TestPipeIsNotWaitedFor: a pipe that takes the place of the lock while it is read is trouble,
// and isn't waited for.
func TestPipeIsNotWaitedFor(t *testing.T) {
	b, c := replaced(t)
	pipe := filepath.Join(b.dir, "pipe")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	if now, err := readFile(pipe, c.info); err != nil || now.trouble == "" {
		t.Errorf("%+v, %v", now, err)
	}
}

// TestParse: a URL names a .beads directory, or the directory that has one. Its text is absolute,
// and parses to the same target.
func TestParse(t *testing.T) {
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
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

// TestOpen: Open refuses a directory that isn't there, and creates none.
func TestOpen(t *testing.T) {
	dir := t.TempDir()
	target, err := Parse("beads:" + dir)
	if err != nil {
		t.Fatal(err)
	}
	if b, err := Open(target, Options{}); b != nil || err == nil || !strings.Contains(err.Error(), filepath.Join(dir, ".beads")) {
		t.Errorf("none is there: %v", err)
	}
	if b, err := Open(Target{}, Options{}); b != nil || err == nil {
		t.Error("no target was opened")
	}
	left(t, dir)
	if err := os.Mkdir(filepath.Join(dir, ".beads"), 0o700); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(target, Options{}); err != nil {
		t.Error(err)
	}
}
