package dir_test

import (
	"context"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

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
	return atTime(t, path, nil)
}

func atTime(t *testing.T, path string, now func() time.Time) store.Store {
	t.Helper()
	s, err := dir.Open(t.Context(), path, dir.Options{Now: now})
	if err != nil {
		t.Fatal(err)
	}
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
	if err != nil {
		t.Fatal(err)
	}
	return string(body)
}

func remove(t *testing.T, s store.Store, key string) {
	t.Helper()
	if err := s.Delete(t.Context(), key); err != nil {
		t.Fatal(err)
	}
}

// listed returns the keys of the first page.
func listed(t *testing.T, s store.Store, prefix string) string {
	t.Helper()
	page, err := s.List(t.Context(), prefix, "")
	if err != nil {
		t.Fatal(err)
	}
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
	if err != nil {
		t.Fatal(err)
	}
	return strings.Join(names, " ")
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
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(body), 0o600); err != nil {
		t.Fatal(err)
	}
}
