//go:build unix

package regular

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/repolock/repolock/internal/test/assert"
)

// TestRefused: a file that isn't regular is refused at once, also through a link, and the error names its
// kind. If an open waits, the test hangs.
func TestRefused(t *testing.T) {
	dir, err := os.MkdirTemp("/tmp", "regular") // TMPDIR can be too long for sockets
	assert.OK(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	at := func(name string) string { return filepath.Join(dir, name) }
	l, err := net.Listen("unix", at("socket"))
	assert.OK(t, err)
	defer l.Close()
	assert.OK(t, errors.Join(syscall.Mkfifo(at("fifo"), 0o600), os.Symlink("fifo", at("link")), os.Mkdir(at("directory"), 0o700)))
	target := func(path string) (*os.File, error) { _, err := Target(path); return nil, err }
	writable := func(path string) (*os.File, error) { return nil, Writable(path) }
	for path, kind := range map[string]string{
		at("fifo"): "a FIFO", at("link"): "a FIFO", at("socket"): "a socket", at("directory"): "a directory", os.DevNull: "a device",
	} {
		for name, use := range map[string]func(string) (*os.File, error){"open": Open, "append": Append, "create": Create, "target": target, "writable": writable} {
			_, err := use(path)
			if path == os.DevNull && (name == "append" || name == "create" || name == "writable") {
				assert.Is(t, err, nil, "%s %s", name, path)
				continue
			}
			assert.That(t, errors.Is(err, ErrRefused) && strings.HasPrefix(err.Error(), path+" is "+kind), "%s %s: %v, want that it is %s", name, path, err, kind)
		}
	}
}

// TestOwnDescriptor: Append and Create write to a pipe that this process has open, and leave it open.
func TestOwnDescriptor(t *testing.T) {
	r, w, err := os.Pipe()
	assert.OK(t, err)
	defer r.Close()
	path := "/dev/fd/" + fmt.Sprint(w.Fd())
	for _, use := range []func(string) (*os.File, error){Append, Create} {
		f, err := use(path)
		assert.OK(t, err)
		_, err = f.WriteString("x")
		assert.Is(t, errors.Join(err, f.Close()), nil)
	}
	_, err = w.WriteString("y")
	assert.Is(t, errors.Join(err, w.Close()), nil)
	text, _ := io.ReadAll(r)
	assert.Equal(t, string(text), "xxy")
}

// TestTarget: Target follows links to the regular file, even to a missing one.
func TestTarget(t *testing.T) {
	dir, err := filepath.EvalSymlinks(t.TempDir())
	assert.OK(t, err)
	at := func(name string) string { return filepath.Join(dir, name) }
	assert.OK(t, errors.Join(
		os.MkdirAll(at("far/away"), 0o700), os.WriteFile(at("file"), nil, 0o600),
		os.Symlink("file", at("link")), os.Symlink(at("link"), at("twice")), os.Symlink("none", at("dangling")),
		os.Symlink("far/away", at("dir")), os.Symlink("dir/../up", at("above")), os.Symlink("loop", at("loop")),
	))
	for name, want := range map[string]string{
		"file": "file", "link": "file", "twice": "file", "dangling": "none", "new": "new", "dir/new": "far/away/new", "above": "far/up",
	} {
		got, err := Target(at(name))
		assert.That(t, err == nil && got == at(want), "%s: %s, %v, want %s", name, got, err, want)
	}
	assert.That(t, assert.Err(Target(at("loop"))) != nil, "a loop has a target")
	assert.Is(t, assert.Err(Target(at("none/file"))), fs.ErrNotExist)
}

// TestSame: a path leads to the same file as its links, hard or symbolic, and as its other spellings, even
// if the file is missing. A device isn't the same file, because a second use overwrites nothing.
func TestSame(t *testing.T) {
	t.Chdir(t.TempDir())
	assert.OK(t, errors.Join(os.WriteFile("file", nil, 0o600), os.WriteFile("other", nil, 0o600), os.Symlink("file", "link"), os.Link("file", "hard"), os.Symlink("none", "dangling")))
	here, err := os.Getwd()
	assert.OK(t, err)
	for _, c := range []struct {
		a, b string
		same bool
	}{
		{"file", "file", true},
		{"file", "./file", true},
		{"file", filepath.Join(here, "file"), true},
		{"link", "file", true},
		{"hard", "link", true},
		{"none", "none", true},
		{"dangling", filepath.Join(here, "none"), true},
		{"file", "other", false},
		{"file", "none", false},
		{"no/file", "no/file", false},
		{os.DevNull, os.DevNull, false},
	} {
		assert.That(t, Same(c.a, c.b) == c.same && Same(c.b, c.a) == c.same, "%s and %s: %t", c.a, c.b, !c.same)
	}
}

// TestCreate: Create empties a file, and Append doesn't.
func TestCreate(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	for _, c := range []struct {
		use  func(string) (*os.File, error)
		want string
	}{{Append, "x"}, {Append, "xx"}, {Create, "x"}} {
		f, err := c.use(path)
		assert.OK(t, err)
		_, err = f.WriteString("x")
		assert.Is(t, errors.Join(err, f.Close()), nil)
		text, err := os.ReadFile(path)
		assert.That(t, string(text) == c.want && err == nil, "%q %v", text, err)
	}
}
