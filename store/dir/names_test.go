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

	"github.com/repolock/repolock/internal/fault"
	"github.com/repolock/repolock/internal/test/assert"
	"github.com/repolock/repolock/store"
	"github.com/repolock/repolock/store/dir"
)

// TestTemporaryNames: no method accepts the name of a temporary file, and List doesn't show it.
func TestTemporaryNames(t *testing.T) {
	for _, key := range []string{".repolock-x.tmp", "index/.repolock-x.tmp", ".repolock-x.tmp/k"} {
		s, path := fresh(t)
		createFile(t, filepath.Join(path, key), "left")
		assert.Equal(t, listed(t, s, "")+listed(t, s, "index/.")+listed(t, s, ".repolock"), "", "listed")
		for name, err := range each(t, s, key) {
			assert.That(t, name == "list" || name == "put if absent" || errors.Is(err, store.ErrInvalidKey), "%s %q: %v", name, key, err)
		}
	}
	s, _ := fresh(t)
	for _, key := range []string{".repolock-x", "x.tmp", ".repolock-x.tmp2"} {
		put(t, s, key, "not temporary")
		assert.Equal(t, listed(t, s, key), key, "listed")
	}
}

func pipe(path string) error { return syscall.Mkfifo(path, 0o600) }

func link(target string) func(string) error {
	return func(path string) error { return os.Symlink(target, path) }
}

// TestIrregular: if a link or a pipe is in place of an object, List shows it, Get refuses it without
// waiting, and Put replaces it and not its target.
func TestIrregular(t *testing.T) {
	for name, make := range map[string]func(path string) error{
		"pipe": pipe, "link in": link("target"), "link out": link("/etc/hosts"), "link to dir": link("."), "dangling": link("nowhere"),
	} {
		s, path := fresh(t)
		put(t, s, "index/target", "body")
		assert.OK(t, make(filepath.Join(path, "index/lock.exclusive")))
		page, err := s.List(t.Context(), "index/lock.", "")
		assert.That(t, err == nil && len(page.Objects) == 1 && strings.HasPrefix(page.Objects[0].ETag, "s-") && page.Objects[0].Size == -1,
			"%s: listed %+v, %v", name, page.Objects, err) // an empty object is a released lock
		_, _, err = s.Get(t.Context(), "index/lock.exclusive", 100)
		assert.That(t, err != nil && !errors.Is(err, store.ErrNotFound), "%s: get: %v", name, err)
		_, err = s.Put(t.Context(), "index/lock.exclusive", nil, store.PutOptions{IfAbsent: true})
		assert.Is(t, err, store.ErrPrecondition, "%s: put if absent", name)
		put(t, s, "index/lock.exclusive", "new")
		assert.That(t, read(t, s, "index/lock.exclusive") == "new" && read(t, s, "index/target") == "body",
			"%s: the put has replaced another file", name)
		remove(t, s, "index/lock.exclusive")
		has(t, path, "index/ index/target")
	}
}

// TestLinkedDirectory: a link in place of a directory is refused, wherever it leads.
func TestLinkedDirectory(t *testing.T) {
	outside := t.TempDir()
	createFile(t, filepath.Join(outside, "lock.exclusive"), "outside")
	for _, target := range []string{outside, "real", "missing"} {
		s, path := fresh(t)
		createFile(t, filepath.Join(path, "real", "lock.exclusive"), "inside")
		assert.OK(t, os.Symlink(target, filepath.Join(path, "index")))
		for name, err := range each(t, s, "index/lock.exclusive") {
			says := fmt.Sprintf("%q is not a directory but a symbolic link", filepath.Join(path, "index"))
			assert.That(t, strings.Contains(fmt.Sprint(err), says) && !errors.Is(err, store.ErrNotFound),
				"to %s: %s: %v", target, name, err)
		}
		assert.Equal(t, listed(t, s, ""), "index real/lock.exclusive", "to %s: listed", target)
		has(t, path, "index real/ real/lock.exclusive")
	}
	has(t, outside, "lock.exclusive")
}

// TestFileInPlaceOfDirectory: no object can have a key below another object's key, as it could in a bucket.
func TestFileInPlaceOfDirectory(t *testing.T) {
	s, path := fresh(t)
	put(t, s, "a/b", "")
	for _, opts := range []store.PutOptions{{}, {IfAbsent: true}} {
		for _, key := range []string{"a", "a/b/c"} {
			_, err := s.Put(t.Context(), key, nil, opts)
			inPlace := strconv.Quote(filepath.Join(path, key[:min(len(key), 3)]))
			assert.That(t, strings.Contains(fmt.Sprint(err), inPlace), "put %q: %v", key, err)
			assert.That(t, !errors.Is(err, store.ErrPrecondition) && !errors.Is(err, store.ErrNotFound), "put %q: %v", key, err)
		}
	}
	has(t, path, "a/ a/b")
	for _, prefix := range []string{"a/b/", "a/b/lock.", "a/b/c/lock."} { // an empty listing would mean that no lock is held
		_, err := s.List(t.Context(), prefix, "")
		assert.Says(t, err, store.ErrIrregular, `a/b": not a directory`)
	}
}

// TestOpenLongName: if a path is too long, the error has the reason, and only a part of the path.
func TestOpenLongName(t *testing.T) {
	below := filepath.Join(t.TempDir(), strings.Repeat("x", 300))
	for _, path := range []string{strings.Repeat("x", 5000), below, strings.Repeat("/abcdefghi", 500)} {
		_, err := dir.Open(t.Context(), path)
		assert.Says(t, err, store.ErrNotFound, `": its name is too long`)
		assert.That(t, strings.HasPrefix(fault.Advice(err), "check the path: "), "advice: %s", fault.Advice(err))
		assert.Is(t, err, syscall.ENAMETOOLONG)
		assert.That(t, !errors.Is(err, store.ErrConfig) && !errors.Is(err, store.ErrInvalidKey), "%v", err)
		assert.That(t, len(fmt.Sprint(err)) <= 500, "%d bytes", len(fmt.Sprint(err)))
	}
}

// TestListedIsDeletable: List shows also names that aren't valid keys, byte for byte. Delete removes
// whatever List shows, and nothing else. Get refuses such a name.
func TestListedIsDeletable(t *testing.T) {
	create := func(path string) error { return os.WriteFile(path, nil, 0o600) }
	for name, make := range map[string]func(path string) error{
		`a\b`: create, "not UTF-8 \xff": create, "a\nb": create, "-": create, strings.Repeat("é", 120): create,
		"pipe": pipe, "dangling": link("nowhere"), "link": link("../../kept"), "link to folder": link(".."),
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
		assert.That(t, err == nil && len(keys) == 2, "%q: listed %q, %v", name, keys, err)
		for _, key := range slices.DeleteFunc(keys, func(key string) bool { return key == "index/lock.shared/kept" }) {
			if store.CheckKey(key) != nil {
				_, _, err := s.Get(t.Context(), key, 100)
				assert.That(t, isInvalid(err), "get %q: %v", key, err)
			}
			assert.Is(t, s.Delete(t.Context(), key), nil, "delete %q", key)
		}
		has(t, path, "index/ index/lock.shared/ index/lock.shared/kept kept")
	}
}

// TestPageBodies: a page has the bodies that Get returns, up to a number of bytes, and no others: not of a large
// file, of a link, or of a name that isn't a valid key.
func TestPageBodies(t *testing.T) {
	s, path := fresh(t)
	put(t, s, "index/lock.exclusive", "body")
	put(t, s, "index/lock.intent/large", strings.Repeat("x", 64<<10+1))
	put(t, s, "index/lock.intent/empty", "")
	assert.OK(t, os.Symlink("../lock.exclusive", filepath.Join(path, "index/lock.intent/link")))
	createFile(t, filepath.Join(path, `index/lock.intent/a\b`), "not a key")
	for n := range 130 {
		put(t, s, fmt.Sprintf("index/lock.shared/%03d", n), strings.Repeat("x", 64<<10))
	}
	page, err := s.List(t.Context(), "index/lock.", "")
	assert.OK(t, err)
	size, shared := 0, 0
	for key, body := range page.Bodies {
		assert.Equal(t, string(body), read(t, s, key), key)
		size += len(body)
		if strings.HasPrefix(key, "index/lock.shared/") {
			shared++
		}
	}
	assert.That(t, size <= 8<<20 && shared > 100 && len(page.Bodies) == shared+1, "%d bytes, %d shared of %d", size, shared, len(page.Bodies))
	assert.Equal(t, len(page.Objects), 135, "objects")
}

// TestDeleteStaysInside: Delete refuses a key that List can't show, and a folder that isn't empty.
func TestDeleteStaysInside(t *testing.T) {
	s, path := fresh(t)
	put(t, s, "a/b", "")
	for _, key := range []string{
		"", "/", "a//", "a/../a/b", "../x", "a/.", "./a/b", "a/b\x00", ".repolock-x.tmp/",
		"a/b/", "a/c/", "c/", `a/b\c`, "\xff", // List could show these, but they don't exist
	} {
		err := s.Delete(t.Context(), key)
		assert.That(t, isInvalid(err), "delete %q: %v", key, err)
	}
	assert.That(t, s.Delete(t.Context(), "a/") != nil, "a folder was deleted that isn't empty")
	has(t, path, "a/ a/b")
}

// TestFolders: List shows an empty directory under the prefix.
func TestFolders(t *testing.T) {
	s, path := fresh(t)
	for _, dir := range []string{"index/lock.exclusive", "index/lock.shared", "index/other/x"} {
		assert.OK(t, os.MkdirAll(filepath.Join(path, dir), 0o700))
	}
	put(t, s, "index/lock.shared/x", "")
	for prefix, want := range map[string]string{
		"": "index/lock.exclusive/ index/other/x/", "index/lock.": "index/lock.exclusive/",
		"index/lock.exclusive/": "index/lock.exclusive/", "index/lock.exclusive/x": "", "index/lock.shared/y": "",
	} {
		page, err := s.List(t.Context(), prefix, "")
		got := strings.Join(page.Folders, " ")
		assert.That(t, err == nil && got == want, "under %q: %q, %v", prefix, got, err)
	}
	empty := at(t, t.TempDir())
	page, err := empty.List(t.Context(), "", "")
	assert.That(t, err == nil && len(page.Folders) == 0, "the repository itself: %q, %v", page.Folders, err)
}

func isInvalid(err error) bool {
	return err != nil && strings.Contains(err.Error(), store.ErrInvalidKey.Error())
}
