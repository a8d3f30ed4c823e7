//go:build unix

package dir_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
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
		must(t, make(filepath.Join(path, "index/lock.exclusive")))
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
		must(t, os.Symlink(target, filepath.Join(path, "index")))
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
	has(t, outside, "lock.exclusive")
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
	has(t, path, "a/ a/b")
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

// TestLongName: a key whose element is too long for this file system is invalid.
func TestLongName(t *testing.T) {
	s, path := fresh(t)
	put(t, s, "a/b", "")
	key := "a/" + strings.Repeat("x", 300)
	for name, err := range each(t, s, key) {
		if name != "list" && !errors.Is(err, store.ErrInvalidKey) {
			t.Errorf("%s: %v", name, err)
		}
	}
	has(t, path, "a/ a/b")
}

// TestListedIsDeletable: List shows names that aren't valid keys too, byte for byte. Delete can remove
// anything that List shows, and nothing beside it. Nothing else can be done with it.
func TestListedIsDeletable(t *testing.T) {
	create := func(path string) error { return os.WriteFile(path, nil, 0o600) }
	link := func(target string) func(string) error {
		return func(path string) error { return os.Symlink(target, path) }
	}
	for name, make := range map[string]func(path string) error{
		`a\b`: create, "not UTF-8 \xff": create, "a\nb": create, "-": create, strings.Repeat("é", 120): create,
		"pipe":     func(path string) error { return syscall.Mkfifo(path, 0o600) },
		"dangling": link("nowhere"), "link": link("../../kept"), "link to folder": link(".."),
		"folder":  func(path string) error { return os.Mkdir(path, 0o700) },
		"odd\xff": func(path string) error { return os.MkdirAll(path+`/a\b/c`, 0o700) },
		`x\`: func(path string) error {
			if err := os.Mkdir(path, 0o700); err != nil {
				return err
			}
			return create(filepath.Join(path, "y"))
		},
	} {
		s, path := fresh(t)
		put(t, s, "kept", "body")
		put(t, s, "index/lock.shared/kept", "body")
		if err := make(filepath.Join(path, "index/lock.shared", name)); err != nil {
			t.Logf("this file system doesn't take %q: %v", name, err)
			continue
		}
		page, err := s.List(t.Context(), "index/", "")
		keys := page.Folders
		for _, o := range page.Objects {
			keys = append(keys, o.Key)
		}
		if err != nil || len(keys) != 2 {
			t.Errorf("%q: listed %q, %v", name, keys, err)
		}
		for _, key := range slices.DeleteFunc(keys, func(key string) bool { return key == "index/lock.shared/kept" }) {
			if store.CheckKey(key) != nil {
				if _, _, err := s.Get(t.Context(), key, 100); !isInvalid(err) {
					t.Errorf("get %q: %v", key, err)
				}
			}
			if err := s.Delete(t.Context(), key); err != nil {
				t.Errorf("delete %q: %v", key, err)
			}
		}
		if got := files(t, path); got != "index/ index/lock.shared/ index/lock.shared/kept kept" {
			t.Errorf("%q: left %q", name, got)
		}
	}
}

// TestDeleteStaysInside: a key that List can't show is refused, and a folder that isn't empty
// stays.
func TestDeleteStaysInside(t *testing.T) {
	s, path := fresh(t)
	put(t, s, "a/b", "")
	for _, key := range []string{"", "/", "a//", "a/../a/b", "../x", "a/.", "./a/b", "a/b\x00", ".repolock-x.tmp/"} {
		if err := s.Delete(t.Context(), key); !isInvalid(err) {
			t.Errorf("delete %q: %v", key, err)
		}
	}
	if err := s.Delete(t.Context(), "a/"); err == nil {
		t.Error("a folder was deleted that isn't empty")
	}
	for _, key := range []string{"a/b/", "a/c/", "c/", `a/b\c`, "\xff"} {
		if err := s.Delete(t.Context(), key); !isInvalid(err) {
			t.Errorf("delete %q, which isn't there: %v", key, err)
		}
	}
	has(t, path, "a/ a/b")
}

// TestFolders: List shows an empty directory under the prefix.
func TestFolders(t *testing.T) {
	s, path := fresh(t)
	for _, dir := range []string{"index/lock.exclusive", "index/lock.shared", "index/other/x"} {
		must(t, os.MkdirAll(filepath.Join(path, dir), 0o700))
	}
	put(t, s, "index/lock.shared/x", "")
	for prefix, want := range map[string]string{
		"": "index/lock.exclusive/ index/other/x/", "index/lock.": "index/lock.exclusive/",
		"index/lock.exclusive/": "index/lock.exclusive/", "index/lock.exclusive/x": "", "index/lock.shared/y": "",
	} {
		page, err := s.List(t.Context(), prefix, "")
		if got := strings.Join(page.Folders, " "); err != nil || got != want {
			t.Errorf("under %q: %q, %v", prefix, got, err)
		}
	}
	empty := at(t, t.TempDir())
	if page, err := empty.List(t.Context(), "", ""); err != nil || len(page.Folders) > 0 {
		t.Errorf("the repository itself: %q, %v", page.Folders, err)
	}
}

func isInvalid(err error) bool {
	return err != nil && strings.Contains(err.Error(), store.ErrInvalidKey.Error())
}
