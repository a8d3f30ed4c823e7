//go:build unix

package regular

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// TestRefused: a file that isn't regular is refused at once, also through a link, and the
// error names its kind. (If an open waits, the test hangs.)
func TestRefused(t *testing.T) {
	dir, err := os.MkdirTemp("/tmp", "regular") // TMPDIR can be too long for sockets
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	at := func(name string) string { return filepath.Join(dir, name) }
	l, err := net.Listen("unix", at("socket"))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if err := errors.Join(syscall.Mkfifo(at("fifo"), 0o600), os.Symlink("fifo", at("link")), os.Mkdir(at("directory"), 0o700)); err != nil {
		t.Fatal(err)
	}
	target := func(path string) (*os.File, error) { _, err := Target(path); return nil, err }
	writable := func(path string) (*os.File, error) { return nil, Writable(path) }
	for path, kind := range map[string]string{
		at("fifo"): "a FIFO", at("link"): "a FIFO", at("socket"): "a socket", at("directory"): "a directory", os.DevNull: "a device",
	} {
		for name, use := range map[string]func(string) (*os.File, error){"open": Open, "append": Append, "create": Create, "target": target, "writable": writable} {
			_, err := use(path)
			if path == os.DevNull && (name == "append" || name == "create" || name == "writable") {
				if err != nil {
					t.Errorf("%s %s: %v", name, path, err)
				}
				continue
			}
			var irregular *Error
			if !errors.As(err, &irregular) || !strings.HasPrefix(irregular.Kind, kind) || !strings.Contains(err.Error(), path) {
				t.Errorf("%s %s: %v, want that it is %s", name, path, err, kind)
			}
		}
	}
}

// TestOwnDescriptor: a pipe that this process has open is written to, and stays open.
func TestOwnDescriptor(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	path := "/dev/fd/" + fmt.Sprint(w.Fd())
	for _, use := range []func(string) (*os.File, error){Append, Create} {
		f, err := use(path)
		if err != nil {
			t.Fatal(err)
		}
		_, err = f.WriteString("x")
		if err := errors.Join(err, f.Close()); err != nil {
			t.Error(err)
		}
	}
	if _, err := w.WriteString("y"); err != nil {
		t.Error(err)
	}
	w.Close()
	text := make([]byte, 10)
	if n, _ := r.Read(text); string(text[:n]) != "xxy" {
		t.Errorf("%q", text[:n])
	}
}

// TestTarget: Target follows links to the regular file, even to a missing one.
func TestTarget(t *testing.T) {
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	at := func(name string) string { return filepath.Join(dir, name) }
	if err := errors.Join(
		os.MkdirAll(at("far/away"), 0o700), os.WriteFile(at("file"), nil, 0o600),
		os.Symlink("file", at("link")), os.Symlink(at("link"), at("twice")), os.Symlink("none", at("dangling")),
		os.Symlink("far/away", at("dir")), os.Symlink("dir/../up", at("above")), os.Symlink("loop", at("loop")),
	); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{
		"file": "file", "link": "file", "twice": "file", "dangling": "none", "new": "new", "dir/new": "far/away/new", "above": "far/up",
	} {
		if got, err := Target(at(name)); err != nil || got != at(want) {
			t.Errorf("%s: %s, %v, want %s", name, got, err, want)
		}
	}
	if _, err := Target(at("loop")); err == nil {
		t.Error("a loop has a target")
	}
	if _, err := Target(at("none/file")); !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
}

// TestSame: a path is the same file as its links, symbolic or not, and as another spelling of it,
// also if the file is missing. A device is no file that a second use would overwrite.
func TestSame(t *testing.T) {
	t.Chdir(t.TempDir())
	if err := errors.Join(os.WriteFile("file", nil, 0o600), os.WriteFile("other", nil, 0o600), os.Symlink("file", "link"), os.Link("file", "hard"), os.Symlink("none", "dangling")); err != nil {
		t.Fatal(err)
	}
	here, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
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
		if Same(c.a, c.b) != c.same || Same(c.b, c.a) != c.same {
			t.Errorf("%s and %s: %t", c.a, c.b, !c.same)
		}
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
		if err != nil {
			t.Fatal(err)
		}
		_, err = f.WriteString("x")
		if err := errors.Join(err, f.Close()); err != nil {
			t.Error(err)
		}
		if text, err := os.ReadFile(path); string(text) != c.want || err != nil {
			t.Errorf("%q %v", text, err)
		}
	}
}
