//go:build unix

package beads_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/repolock/repolock/locking/beads"
)

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
		target, err := beads.Parse(raw)
		if err != nil || target.Dir != want || target.String() != "beads:"+want {
			t.Errorf("%q: %+v, %v, want %s", raw, target, err, want)
		}
		if again, err := beads.Parse(target.String()); err != nil || again != target {
			t.Errorf("%q: %+v, then %+v, %v", raw, target, again, err)
		}
	}
	for _, raw := range []string{
		"", "beads", "beads:", "bead:x", ".beads", "beads://host/x", "beads:///srv", "beads:x?settle=5s", "beads:x#y",
		"beads:a\nb", "beads:a\x00b", "beads:\x1b[31m", "beads:\xff", "beads:a\u202eb", " beads:x",
	} {
		target, err := beads.Parse(raw)
		if err == nil || target != (beads.Target{}) || strings.ContainsAny(err.Error(), "\n\x00\x1b") ||
			!utf8.ValidString(err.Error()) {
			t.Errorf("%q: %+v, %v", raw, target, err)
		}
	}
	if left, err := os.ReadDir("."); len(left) > 0 || err != nil {
		t.Errorf("left: %v, %v", left, err)
	}
}

// TestOpen: both spellings lock the same database. Open refuses a directory that isn't there,
// and creates none.
func TestOpen(t *testing.T) {
	dir := t.TempDir()
	parse := func(raw string) beads.Target {
		t.Helper()
		target, err := beads.Parse(raw)
		if err != nil {
			t.Fatal(err)
		}
		return target
	}
	b, err := beads.Open(parse("beads:"+dir), beads.Options{})
	if b != nil || err == nil || !strings.Contains(err.Error(), filepath.Join(dir, ".beads")) {
		t.Errorf("none is there: %v", err)
	}
	if b, err := beads.Open(beads.Target{}, beads.Options{}); b != nil || err == nil {
		t.Error("no target was opened")
	}
	if left, _ := os.ReadDir(dir); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
	if err := os.Mkdir(filepath.Join(dir, ".beads"), 0o700); err != nil {
		t.Fatal(err)
	}
	holder, err := beads.Open(parse("beads:"+dir), beads.Options{Clock: new(beads.Leap)})
	if err != nil {
		t.Fatal(err)
	}
	h, ok, err := holder.TryLock(t.Context(), beads.Key, 1)
	if !ok || err != nil {
		t.Fatal(ok, err)
	}
	other, err := beads.Open(parse("beads:"+filepath.Join(dir, ".beads")), beads.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if _, ok, err := other.TryLock(t.Context(), beads.Key, 1); ok || err != nil {
		t.Errorf("acquired %v, %v", ok, err)
	}
	if err := holder.Release(t.Context(), h); err != nil {
		t.Error(err)
	}
}
