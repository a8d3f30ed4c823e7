//go:build unix

package config

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/repolock/repolock/internal/test/assert"
)

// home is a directory of settings that Find looks into first.
func home(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	t.Setenv("HOME", dir)
	t.Setenv("XDG_CONFIG_HOME", "")
	places := Places()
	assert.Need(t, len(places) == 2 && strings.HasPrefix(places[0], dir), "places: %q", places)
	others := system
	system = []string{filepath.Join(dir, "etc", "config.toml")}
	t.Cleanup(func() { system = others })
	return filepath.Dir(places[0])
}

// TestFind: Find returns the first file that exists, even if it can't be read.
func TestFind(t *testing.T) {
	dir := home(t)
	want := func(path string) {
		t.Helper()
		assert.Equal(t, Find(), path)
	}
	want("")
	for _, d := range []string{dir, filepath.Dir(system[0])} {
		assert.OK(t, os.MkdirAll(d, 0o700))
	}
	assert.OK(t, os.WriteFile(system[0], nil, 0o600))
	want(system[0])
	assert.OK(t, os.Symlink("nowhere", filepath.Join(dir, "config.toml")))
	want(filepath.Join(dir, "config.toml"))
	assert.That(t, assert.Err(Load(Find())) != nil, "a link that leads nowhere was read")
	// Root can read any file.
	seen := !missing(filepath.Join(dir, "config.toml"), fs.ErrPermission) && missing(system[0], fs.ErrPermission)
	assert.That(t, seen, "our own settings that are closed to us are there, and the system's aren't")
	t.Setenv("HOME", os.DevNull)
	want(system[0])
	t.Setenv("HOME", "")
	want(system[0])
}

// says checks an error's words; "" wants no error.
func says(t *testing.T, err error, words, name string) {
	t.Helper()
	assert.That(t, (err == nil) == (words == "") && strings.Contains(fmt.Sprint(err), words), "%s: %v, want %q", name, err, words)
}

// TestTrusted: a file that other users can change isn't read.
func TestTrusted(t *testing.T) {
	for _, c := range []struct {
		mode        os.FileMode
		owner, self uint32
		says        string
	}{
		{0o644, 0, 0, ""}, {0o600, 0, 7, ""}, {0o444, 7, 7, ""}, {0o755, 7, 7, ""},
		{0o664, 7, 7, "mode 0664), and could choose another lock: chmod go-w 'a b'"}, {0o646, 0, 7, "mode 0646"}, {0o622, 0, 0, "mode 0622"},
		{0o644, 8, 7, "user 8"}, {0o600, 8, 0, "user 8"},
	} {
		says(t, checkFile("a b", c.mode, c.owner, c.self), c.says, fmt.Sprintf("%+v", c))
	}
	path := file(t, "repo = '/x'")
	assert.Is(t, assert.Err(Load(path)), nil)
	assert.OK(t, os.Chmod(path, 0o602))
	says(t, assert.Err(Load(path)), path+": others may write to it (mode 0602)", path)
}

// TestWayTrusted: a file isn't read if other users can replace it: by a folder above it, or
// above a link that leads to it.
func TestWayTrusted(t *testing.T) {
	top := t.TempDir()
	make := func(path string, mode os.FileMode) string {
		t.Helper()
		dir := filepath.Join(top, path)
		assert.OK(t, os.MkdirAll(dir, 0o700))
		assert.OK(t, os.WriteFile(filepath.Join(dir, "config.toml"), []byte("repo = '/x'"), 0o644))
		assert.OK(t, os.Chmod(dir, mode))
		return filepath.Join(dir, "config.toml")
	}
	link := func(target, path string) string {
		t.Helper()
		assert.OK(t, os.Symlink(target, filepath.Join(top, path)))
		return filepath.Join(top, path)
	}
	good := make("good", 0o755)
	open := make("open", 0o777)
	below := make("open/below", 0o755)
	team := make("team", 0o775)
	tmp := make("tmp", 0o777|os.ModeSticky)
	assert.OK(t, os.Mkdir(filepath.Join(top, "links"), 0o755))
	for _, c := range []struct{ name, path, says string }{
		{"no other user", good, ""},
		{"sticky, as /tmp", tmp, ""},
		{"others'", open, "other users may write to the folder " + filepath.Dir(open) + " on its path (mode 0777)"},
		{"above", below, "the folder " + filepath.Dir(open) + " "},
		{"a group's", team, "mode 0775"},
		{"a link", link(good, "links/1"), ""},
		{"a relative one", link("../good/config.toml", "links/2"), ""},
		{"into an open folder", link(open, "links/3"), "the folder " + filepath.Dir(open) + " "},
		{"from an open folder", link("../good/config.toml", "open/link"), "the folder " + filepath.Dir(open) + " "},
		{"a folder that is a link", link(filepath.Dir(open), "links/4") + "/config.toml", "the folder " + filepath.Dir(open) + " "},
		{"through an open folder and back", link("../open/below/../../good/config.toml", "links/5"), "the folder " + filepath.Dir(open) + " "},
		{"a link to a link", link("1", "links/6"), ""},
	} {
		err := assert.Err(Load(c.path))
		says(t, err, c.says, c.name)
		assert.That(t, err == nil || strings.HasPrefix(err.Error(), c.path+": "), "%s: %v", c.name, err)
	}
	loop := link("8", "links/8")
	says(t, follow(loop), "too many links", "a link to itself")
	t.Chdir(filepath.Dir(open))
	says(t, assert.Err(Load("config.toml")), filepath.Dir(open), "relative")
	if os.Geteuid() != 0 {
		return // none but root can give files away
	}
	theirs := link(good, "links/7")
	assert.OK(t, os.Lchown(theirs, 4711, -1))
	says(t, assert.Err(Load(theirs)), "user 4711 owns the link "+theirs+" on its path", "their link")
	assert.OK(t, os.Chown(filepath.Dir(good), 4711, -1))
	says(t, assert.Err(Load(good)), "user 4711 owns the folder "+filepath.Dir(good)+" on its path", "their folder")
}
