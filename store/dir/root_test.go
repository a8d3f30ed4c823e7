package dir_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/repolock/repolock/store"
	"github.com/repolock/repolock/store/dir"
)

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
	if got := files(t, path); got != "file" {
		t.Errorf("opening made %q", got)
	}
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
	if err := os.Mkdir(path, 0o700); err != nil {
		t.Fatal(err)
	}
	s := at(t, path)
	put(t, s, "index/lock.exclusive", "body")
	if err := os.RemoveAll(path); err != nil {
		t.Fatal(err)
	}
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
	if got := files(t, path); got != "k" {
		t.Errorf("wrote %q", got)
	}
}
