package dir_test

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/repolock/repolock/internal/test/assert"
	"github.com/repolock/repolock/internal/test/requests"
	"github.com/repolock/repolock/store"
	"github.com/repolock/repolock/store/dir"
)

func fresh(t *testing.T) (store.Store, string) {
	t.Helper()
	path := t.TempDir()
	return at(t, path), path
}

func at(t *testing.T, path string) store.Store {
	t.Helper()
	s, err := dir.Open(t.Context(), path)
	assert.OK(t, err)
	return s
}

func put(t *testing.T, s store.Store, key, body string) {
	t.Helper()
	assert.OK(t, assert.Err(s.Put(t.Context(), key, []byte(body), store.PutOptions{})))
}

func read(t *testing.T, s store.Store, key string) string {
	t.Helper()
	body, _, err := s.Get(t.Context(), key, 1<<20)
	assert.OK(t, err)
	return string(body)
}

func remove(t *testing.T, s store.Store, key string) {
	t.Helper()
	assert.OK(t, s.Delete(t.Context(), key))
}

// listed returns the keys of a listing, joined by spaces.
func listed(t *testing.T, s store.Store, prefix string) string {
	t.Helper()
	page, err := s.List(t.Context(), prefix, "")
	assert.OK(t, err)
	var keys []string
	for _, obj := range page.Objects {
		keys = append(keys, obj.Key)
	}
	return strings.Join(keys, " ")
}

// has checks the names below a directory. Directories have a slash at the end.
func has(t *testing.T, path, want string) {
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
	assert.OK(t, err)
	assert.Equal(t, strings.Join(names, " "), want, "%s has", path)
}

func createFile(t *testing.T, path, body string) {
	t.Helper()
	assert.OK(t, os.MkdirAll(filepath.Dir(path), 0o700))
	assert.OK(t, os.WriteFile(path, []byte(body), 0o600))
}

func TestOpenNeedsDirectory(t *testing.T) {
	path := t.TempDir()
	file := filepath.Join(path, "file")
	createFile(t, file, "")
	for _, path := range []string{"", filepath.Join(path, "missing"), file, filepath.Join(file, "below")} {
		_, err := dir.Open(t.Context(), path)
		assert.That(t, errors.Is(err, store.ErrNotFound) && store.Permanent(err), "%q: %v", path, err)
		assert.That(t, path == "" || strings.Count(fmt.Sprint(err), ": ") == 1, "the cause is shown twice: %v", err)
	}
	has(t, path, "file")
}

// each returns the errors of all methods on a key.
func each(t *testing.T, s store.Store, key string) map[string]error {
	errs := requests.Each(t.Context(), s, key)
	_, errs["put if absent"] = s.Put(t.Context(), key+"-new", nil, store.PutOptions{IfAbsent: true})
	_, errs["put if match"] = s.Put(t.Context(), key, nil, store.PutOptions{IfMatch: "x"})
	return errs
}

// TestRootGone: if the repository's directory disappears, no method makes it again.
func TestRootGone(t *testing.T) {
	path := filepath.Join(t.TempDir(), "repo")
	assert.OK(t, os.Mkdir(path, 0o700))
	s := at(t, path)
	put(t, s, "index/lock.exclusive", "body")
	assert.OK(t, os.RemoveAll(path))
	for name, err := range each(t, s, "index/lock.exclusive") {
		assert.Says(t, err, store.ErrNotFound, path+" is gone", name)
	}
	assert.Is(t, assert.Err(os.Lstat(path)), os.ErrNotExist, "it is there again")
	createFile(t, path, "a file")
	for name, err := range each(t, s, "index/lock.exclusive") {
		assert.Is(t, err, store.ErrNotFound, "a file in its place: %s", name)
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
