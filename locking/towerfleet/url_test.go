//go:build unix

package towerfleet

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/repolock/repolock/internal/test/assert"
	"github.com/repolock/repolock/locking"
)

// TestParse: a target has an absolute and clean directory, and its URL reads as the same target.
func TestParse(t *testing.T) {
	t.Chdir(t.TempDir())
	here, err := os.Getwd()
	assert.OK(t, err)
	for raw, want := range map[string]Target{
		"tower-fleet:/var/lib/locks/nightly":         {"/var/lib/locks", "nightly"},
		"TOWER-FLEET:/var//lib/./x/../locks/nightly": {"/var/lib/locks", "nightly"},
		"tower-fleet:locks/nightly":                  {filepath.Join(here, "locks"), "nightly"},
		"tower-fleet:./nightly":                      {here, "nightly"},
		"tower-fleet:../a-b_c":                       {filepath.Dir(here), "a-b_c"},
		"tower-fleet:/nightly":                       {"/", "nightly"},
		"tower-fleet:/a b/%41?x=1#y:z/~/n":           {"/a b/%41?x=1#y:z/~", "n"},
	} {
		got, err := Parse(raw)
		assert.That(t, err == nil && got == want, "%s: %+v %v, want %+v", raw, got, err, want)
		t.Chdir(os.TempDir())
		if again, err := Parse(got.String()); err != nil || again != got || again.String() != got.String() {
			t.Errorf("%s: %s is %+v %v", raw, got, again, err)
		}
		t.Chdir(here)
	}
	assert.Equal(t, Target{"/var/lib/locks", "nightly"}.String(), "tower-fleet:/var/lib/locks/nightly")
}

// TestParseRefuses: another URL is refused in one line, and a wrong name is locking.ErrKey.
func TestParseRefuses(t *testing.T) {
	for raw, key := range map[string]bool{
		"": false, "nightly": false, "/var/lib/nightly": false, "tower:/x/n": false, "tower-fleet": false,
		"tower-fleet:": false, "tower-fleet:nightly": false, "tower-fleet://host/n": false,
		"tower-fleet:///var/n": false, "tower-fleet:~/locks/n": false, "tower-fleet:/a\nb/n": false,
		"tower-fleet:/a\x00/n": false, "tower-fleet:/\x1b[2J/n": false, "tower-fleet:/\xff/n": false, "tower-fleet:/a\nb/../n": false,
		"tower-fleet:/x/": true, "tower-fleet:/x/A": true, "tower-fleet:/x/n?force=1": true, "tower-fleet:/x/n#y": true,
		"tower-fleet:/x/-n": true, "tower-fleet:/x/..": true, "tower-fleet:/x/n.lock": true,
		"tower-fleet:/x/" + strings.Repeat("n", 129): true,
	} {
		got, err := Parse(raw)
		if err == nil || errors.Is(err, locking.ErrKey) != key || got != (Target{}) ||
			strings.ContainsAny(err.Error(), "\n\x00\x1b") {
			t.Errorf("%q: %+v %v", raw, got, err)
		}
	}
	assert.Says(t, assert.Err(Parse("tower-fleet:/x/n.lock")), locking.ErrKey, "leave out .lock")
}

// TestParseInAnOddDirectory: a relative URL is refused in a working directory whose name isn't printable.
func TestParseInAnOddDirectory(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "a\nb")
	assert.OK(t, os.Mkdir(dir, 0o700))
	t.Chdir(dir)
	err := assert.Err(Parse("tower-fleet:./nightly"))
	assert.That(t, strings.Contains(err.Error(), "isn't printable") && !strings.Contains(err.Error(), "\n"), "%v", err)
}

func FuzzParse(f *testing.F) {
	f.Add("tower-fleet:/var/lib/locks/nightly")
	f.Add("tower-fleet:../x/n")
	f.Fuzz(func(t *testing.T, raw string) {
		got, err := Parse(raw)
		if err != nil {
			assert.That(t, !strings.Contains(err.Error(), "\n"), "%q", err)
			return
		}
		again, err := Parse(got.String())
		if err != nil || again != got || checkName(got.Name) != nil || !filepath.IsAbs(got.Dir) {
			t.Errorf("%q: %+v, again %+v %v", raw, got, again, err)
		}
	})
}
