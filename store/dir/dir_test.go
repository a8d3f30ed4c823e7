package dir_test

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/repolock/repolock/store"
	"github.com/repolock/repolock/store/dir"
)

// background is the context outside of a test.
var background = context.Background()

// fresh returns a store in an empty directory.
func fresh(t *testing.T) (store.Store, string) {
	t.Helper()
	path := t.TempDir()
	return at(t, path), path
}

func at(t *testing.T, path string) store.Store {
	t.Helper()
	s, err := dir.Open(t.Context(), path, dir.Options{})
	must(t, err)
	return s
}

func put(t *testing.T, s store.Store, key, body string) {
	t.Helper()
	if _, err := s.Put(t.Context(), key, []byte(body), store.PutOptions{}); err != nil {
		t.Fatal(err)
	}
}

func read(t *testing.T, s store.Store, key string) string {
	t.Helper()
	body, _, err := s.Get(t.Context(), key, 1<<20)
	must(t, err)
	return string(body)
}

func remove(t *testing.T, s store.Store, key string) {
	t.Helper()
	must(t, s.Delete(t.Context(), key))
}

// listed returns the keys of the first page.
func listed(t *testing.T, s store.Store, prefix string) string {
	t.Helper()
	page, err := s.List(t.Context(), prefix, "")
	must(t, err)
	var keys []string
	for _, obj := range page.Objects {
		keys = append(keys, obj.Key)
	}
	return strings.Join(keys, " ")
}

// files returns the names in a directory, with "/" after a directory's.
func files(t *testing.T, path string) string {
	t.Helper()
	var names []string
	err := filepath.WalkDir(path, func(name string, entry fs.DirEntry, err error) error {
		if err != nil || name == path {
			return err
		}
		name, err = filepath.Rel(path, name)
		if entry.IsDir() {
			name += "/"
		}
		names = append(names, filepath.ToSlash(name))
		return err
	})
	must(t, err)
	return strings.Join(names, " ")
}

// has checks the names in a directory.
func has(t *testing.T, path, want string) {
	t.Helper()
	if got := files(t, path); got != want {
		t.Errorf("%s has %q, want %q", path, got, want)
	}
}

// tidy checks that no temporary file is left.
func tidy(t *testing.T, path string) {
	t.Helper()
	if got := files(t, path); strings.Contains(got, ".repolock-") {
		t.Errorf("left: %s", got)
	}
}

func createFile(t *testing.T, path, body string) {
	t.Helper()
	must(t, os.MkdirAll(filepath.Dir(path), 0o700))
	must(t, os.WriteFile(path, []byte(body), 0o600))
}

func TestOpenNeedsDirectory(t *testing.T) {
	path := t.TempDir()
	file := filepath.Join(path, "file")
	createFile(t, file, "")
	for _, path := range []string{"", filepath.Join(path, "missing"), file, filepath.Join(file, "below")} {
		_, err := dir.Open(t.Context(), path, dir.Options{})
		if !errors.Is(err, store.ErrNotFound) || !store.Permanent(err) {
			t.Errorf("%q: %v", path, err)
		}
		if path != "" && strings.Count(err.Error(), ": ") != 1 {
			t.Errorf("the cause is there twice: %v", err)
		}
	}
	has(t, path, "file")
}

// each calls every method, and returns the errors.
func each(t *testing.T, s store.Store, key string) map[string]error {
	t.Helper()
	_, put := s.Put(t.Context(), key, []byte("new"), store.PutOptions{})
	_, absent := s.Put(t.Context(), key+"-new", []byte("new"), store.PutOptions{IfAbsent: true})
	_, match := s.Put(t.Context(), key, []byte("new"), store.PutOptions{IfMatch: "x"})
	_, _, get := s.Get(t.Context(), key, 100)
	_, list := s.List(t.Context(), key, "")
	return map[string]error{
		"put": put, "put if absent": absent, "put if match": match,
		"get": get, "list": list, "delete": s.Delete(t.Context(), key),
	}
}

// TestRootGone: a store doesn't make its repository again after it has disappeared.
func TestRootGone(t *testing.T) {
	path := filepath.Join(t.TempDir(), "repo")
	must(t, os.Mkdir(path, 0o700))
	s := at(t, path)
	put(t, s, "index/lock.exclusive", "body")
	must(t, os.RemoveAll(path))
	for name, err := range each(t, s, "index/lock.exclusive") {
		if !errors.Is(err, store.ErrNotFound) || !strings.Contains(err.Error(), path+" is gone") {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := os.Lstat(path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("it is there again: %v", err)
	}
	createFile(t, path, "a file")
	for name, err := range each(t, s, "index/lock.exclusive") {
		if !errors.Is(err, store.ErrNotFound) {
			t.Errorf("a file in its place: %s: %v", name, err)
		}
	}
}

func TestOpenIsAbsolute(t *testing.T) {
	path := t.TempDir()
	t.Chdir(path)
	s := at(t, ".")
	t.Chdir(t.TempDir())
	put(t, s, "k", "")
	has(t, path, "k")
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
