//go:build unix

package dir_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/repolock/repolock/store"
	"github.com/repolock/repolock/store/dir"
)

// TestTemporaryNames: temporary files of a dead process can't be reached, and aren't listed.
func TestTemporaryNames(t *testing.T) {
	for _, key := range []string{".repolock-x.tmp", "index/.repolock-x.tmp", ".repolock-x.tmp/k"} {
		s, path := fresh(t)
		createFile(t, filepath.Join(path, key), "left")
		_, put := s.Put(t.Context(), key, nil, store.PutOptions{})
		_, _, get := s.Get(t.Context(), key, 100)
		for name, err := range map[string]error{"put": put, "get": get, "delete": s.Delete(t.Context(), key)} {
			if !errors.Is(err, store.ErrInvalidKey) {
				t.Errorf("%s %q: %v", name, key, err)
			}
		}
		if got := listed(t, s, "") + listed(t, s, "index/.") + listed(t, s, ".repolock"); got != "" {
			t.Errorf("listed %q", got)
		}
	}
	s, _ := fresh(t)
	for _, key := range []string{".repolock-x", "x.tmp", ".repolock-x.tmp2"} {
		put(t, s, key, "not temporary")
		if got := listed(t, s, key); got != key {
			t.Errorf("listed %q", got)
		}
	}
}

// TestOddNames: files whose names aren't valid keys are listed, and nothing else can be done
// with them.
func TestOddNames(t *testing.T) {
	if runtime.GOOS == "darwin" {
		t.Log("macOS takes no name that isn't UTF-8; the backslash is tested")
	}
	for _, key := range []string{"index/lock.shared/\xff\xfe", `index/lock.shared/a\b`} {
		s, path := fresh(t)
		if err := os.MkdirAll(filepath.Join(path, "index/lock.shared"), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(path, key), []byte("odd"), 0o600); err != nil {
			if runtime.GOOS == "darwin" && key[len(key)-1] == 0xfe {
				continue
			}
			t.Fatal(err)
		}
		if got := listed(t, s, "index/lock."); got != key {
			t.Errorf("listed %q", got)
		}
		if _, _, err := s.Get(t.Context(), key, 100); !errors.Is(err, store.ErrInvalidKey) {
			t.Errorf("get %q: %v", key, err)
		}
	}
}

// TestIrregular: a file that isn't regular, in place of an object, is neither followed, nor
// waited for, nor left out.
func TestIrregular(t *testing.T) {
	for name, make := range map[string]func(path string) error{
		"pipe":        func(path string) error { return syscall.Mkfifo(path, 0o600) },
		"link in":     func(path string) error { return os.Symlink("target", path) },
		"link out":    func(path string) error { return os.Symlink("/etc/hosts", path) },
		"link to dir": func(path string) error { return os.Symlink(".", path) },
		"dangling":    func(path string) error { return os.Symlink("nowhere", path) },
	} {
		s, path := fresh(t)
		put(t, s, "index/target", "body")
		if err := make(filepath.Join(path, "index/lock.exclusive")); err != nil {
			t.Fatal(err)
		}
		page, err := s.List(t.Context(), "index/lock.", "")
		if err != nil || len(page.Objects) != 1 || !strings.HasPrefix(page.Objects[0].ETag, "s-") {
			t.Errorf("%s: listed %+v, %v", name, page.Objects, err)
		}
		_, _, err = s.Get(t.Context(), "index/lock.exclusive", 100)
		if err == nil || errors.Is(err, store.ErrNotFound) {
			t.Errorf("%s: get: %v", name, err)
		}
		_, err = s.Put(t.Context(), "index/lock.exclusive", nil, store.PutOptions{IfAbsent: true})
		if !errors.Is(err, store.ErrPrecondition) {
			t.Errorf("%s: put if absent: %v", name, err)
		}
		// A put replaces it, and not its target.
		put(t, s, "index/lock.exclusive", "new")
		if read(t, s, "index/lock.exclusive") != "new" || read(t, s, "index/target") != "body" {
			t.Errorf("%s: put went elsewhere", name)
		}
		remove(t, s, "index/lock.exclusive")
		if got := files(t, path); got != "index/ index/target" {
			t.Errorf("%s: left %s", name, got)
		}
	}
}

// TestLinkedDirectory: a link in place of a directory is refused, wherever it leads, because
// an object that is put through it would be listed elsewhere.
func TestLinkedDirectory(t *testing.T) {
	outside := t.TempDir()
	createFile(t, filepath.Join(outside, "lock.exclusive"), "outside")
	for _, target := range []string{outside, "real", "missing"} {
		s, path := fresh(t)
		createFile(t, filepath.Join(path, "real", "lock.exclusive"), "inside")
		if err := os.Symlink(target, filepath.Join(path, "index")); err != nil {
			t.Fatal(err)
		}
		for name, err := range each(t, s, "index/lock.exclusive") {
			if err == nil || errors.Is(err, store.ErrNotFound) || !strings.Contains(err.Error(), fmt.Sprintf("%q is not a directory but a symbolic link", filepath.Join(path, "index"))) {
				t.Errorf("to %s: %s: %v", target, name, err)
			}
		}
		if got := listed(t, s, ""); got != "index real/lock.exclusive" {
			t.Errorf("to %s: listed %q", target, got)
		}
		if got := files(t, path); got != "index real/ real/lock.exclusive" {
			t.Errorf("to %s: left %q", target, got)
		}
	}
	if got := files(t, outside); got != "lock.exclusive" {
		t.Errorf("outside: %q", got)
	}
}

// TestFileInPlaceOfDirectory: a key below another object's key is an error, although object
// stores allow it.
func TestFileInPlaceOfDirectory(t *testing.T) {
	s, path := fresh(t)
	put(t, s, "a/b", "")
	for _, opts := range []store.PutOptions{{}, {IfAbsent: true}} {
		for _, key := range []string{"a", "a/b/c"} {
			_, err := s.Put(t.Context(), key, nil, opts)
			if err == nil || errors.Is(err, store.ErrPrecondition) || errors.Is(err, store.ErrNotFound) {
				t.Errorf("put %q: %v", key, err)
			} else if !strings.Contains(err.Error(), strconv.Quote(filepath.Join(path, key[:min(len(key), 3)]))) {
				t.Errorf("put %q: what is in the place isn't named: %v", key, err)
			}
		}
	}
	if got := files(t, path); got != "a/ a/b" {
		t.Errorf("left %q", got)
	}
}

// TestOpenLongName: no directory can have a name that is too long. The error shows the reason, and not the
// whole name in front of it.
func TestOpenLongName(t *testing.T) {
	for _, path := range []string{strings.Repeat("x", 5000), filepath.Join(t.TempDir(), strings.Repeat("x", 300)), strings.Repeat("/abcdefghi", 500)} {
		_, err := dir.Open(t.Context(), path, dir.Options{})
		if !errors.Is(err, store.ErrNotFound) || !errors.Is(err, syscall.ENAMETOOLONG) || errors.Is(err, store.ErrConfig) || errors.Is(err, store.ErrInvalidKey) {
			t.Errorf("%.20q: %v", path, err)
		} else if says := err.Error(); len(says) > 500 || !strings.HasSuffix(says, `": its name is too long`) {
			t.Errorf("%.20q: %d bytes: %s", path, len(says), says)
		}
	}
}

func TestLongName(t *testing.T) {
	s, path := fresh(t)
	put(t, s, "a/b", "")
	key := "a/" + strings.Repeat("x", 300)
	for name, err := range each(t, s, key) {
		if name != "list" && !errors.Is(err, store.ErrInvalidKey) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if got := files(t, path); got != "a/ a/b" {
		t.Errorf("left %q", got)
	}
}
