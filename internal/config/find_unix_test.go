//go:build unix

package config

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// home is a directory of settings that Find looks into first.
func home(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	t.Setenv("HOME", dir)
	t.Setenv("XDG_CONFIG_HOME", "")
	places := Places()
	if len(places) != 2 || !strings.HasPrefix(places[0], dir) {
		t.Fatalf("places: %q", places)
	}
	others := system
	system = []string{filepath.Join(dir, "etc", "config.toml")}
	t.Cleanup(func() { system = others })
	return filepath.Dir(places[0])
}

// TestFind: the first that is there, even if it can't be read.
func TestFind(t *testing.T) {
	dir := home(t)
	want := func(path string) {
		t.Helper()
		if got := Find(); got != path {
			t.Errorf("found %q, want %q", got, path)
		}
	}
	want("")
	for _, d := range []string{dir, filepath.Dir(system[0])} {
		if err := os.MkdirAll(d, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(system[0], nil, 0o600); err != nil {
		t.Fatal(err)
	}
	want(system[0])
	if err := os.Symlink("nowhere", filepath.Join(dir, "config.toml")); err != nil {
		t.Fatal(err)
	}
	want(filepath.Join(dir, "config.toml"))
	if _, err := Load(Find()); err == nil {
		t.Error("a link that leads nowhere was read")
	}
	// To root nothing is closed.
	if closed := fs.ErrPermission; missing(filepath.Join(dir, "config.toml"), closed) || !missing(system[0], closed) {
		t.Error("our own settings that are closed to us are there, and the system's aren't")
	}
	t.Setenv("HOME", os.DevNull)
	want(system[0])
	t.Setenv("HOME", "")
	want(system[0])
}

// TestTrusted: a file that others can change isn't read.
func TestTrusted(t *testing.T) {
	for _, c := range []struct {
		mode        os.FileMode
		owner, self uint32
		says        string
	}{
		{0o644, 0, 0, ""}, {0o600, 0, 7, ""}, {0o444, 7, 7, ""}, {0o755, 7, 7, ""},
		{0o664, 7, 7, "mode 0664"}, {0o646, 0, 7, "mode 0646"}, {0o622, 0, 0, "mode 0622"},
		{0o644, 8, 7, "user 8"}, {0o600, 8, 0, "user 8"},
	} {
		err := judge(c.mode, c.owner, c.self)
		if (err == nil) != (c.says == "") || err != nil && !strings.Contains(err.Error(), c.says) {
			t.Errorf("%+v: %v", c, err)
		}
	}
	path := file(t, "repo = '/x'")
	if _, err := Load(path); err != nil {
		t.Error(err)
	}
	if err := os.Chmod(path, 0o602); err != nil {
		t.Fatal(err)
	}
	if _, err := Load(path); err == nil || !strings.Contains(err.Error(), path+": others may write to it (mode 0602)") {
		t.Error(err)
	}
}
