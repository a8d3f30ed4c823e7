//go:build unix

package dir_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/repolock/repolock/internal/test/assert"
	"github.com/repolock/repolock/store"
)

// TestDeletePrunes: Delete removes the empty folders above an object, but never index, and outside of index
// no folder of another program.
func TestDeletePrunes(t *testing.T) {
	s, path := fresh(t)
	assert.OK(t, os.MkdirAll(filepath.Join(path, "data", "snapshots"), 0o700))
	put(t, s, "index/keep", "")
	for _, key := range []string{"data/snapshots/x/y", "index/locks/a/lock.shared/z"} {
		put(t, s, key, "1")
		remove(t, s, key)
	}
	has(t, path, "data/ data/snapshots/ index/ index/keep")
	remove(t, s, "index/keep")
	has(t, path, "data/ data/snapshots/ index/")
}

// TestRefusedPutLeavesNothing: a refused put removes the directories that it has made, but never index.
func TestRefusedPutLeavesNothing(t *testing.T) {
	s, path := fresh(t)
	_, err := s.Put(t.Context(), "index/locks/a/lock.exclusive", nil, store.PutOptions{IfMatch: "x"})
	assert.Is(t, err, store.ErrPrecondition)
	has(t, path, "index/")
	put(t, s, "index/lock.exclusive", "")
	for _, opts := range []store.PutOptions{{IfAbsent: true}, {IfMatch: "x"}, {IfAbsent: true, IfMatch: "x"}} {
		assert.Is(t, assert.Err(s.Put(t.Context(), "index/lock.exclusive", nil, opts)), store.ErrPrecondition)
	}
	has(t, path, "index/ index/lock.exclusive")
}

// TestSweep: a request removes temporary files after a day, and no others. It looks in the object's directory, or above
// it if it removes that.
func TestSweep(t *testing.T) {
	for age, left := range map[time.Duration]string{
		23 * time.Hour: ".repolock-x.tmp .repolock-y.tmp/ index/ index/.repolock-x.tmp index/.repolock-y.tmp/ index/other.tmp other.tmp",
		25 * time.Hour: "index/ index/other.tmp other.tmp",
	} {
		s, path := fresh(t)
		for _, dir := range []string{path, filepath.Join(path, "index")} {
			createFile(t, filepath.Join(dir, ".repolock-x.tmp"), "left")
			createFile(t, filepath.Join(dir, "other.tmp"), "not ours")
			assert.OK(t, os.Mkdir(filepath.Join(dir, ".repolock-y.tmp"), 0o700))
			for _, name := range []string{".repolock-x.tmp", "other.tmp", ".repolock-y.tmp"} {
				assert.OK(t, os.Chtimes(filepath.Join(dir, name), time.Time{}, time.Now().Add(-age)))
			}
		}
		for _, key := range []string{"made/k", "index/lock.exclusive"} {
			put(t, s, key, "")
			remove(t, s, key)
		}
		has(t, path, left)
	}
}

// interrupted is a context that calls a function once, during a Put, while its temporary file exists.
type interrupted struct {
	context.Context
	dir  string
	once func()
}

func (c *interrupted) Err() error {
	if left, _ := filepath.Glob(filepath.Join(c.dir, ".repolock-*")); len(left) > 0 && c.once != nil {
		once := c.once
		c.once = nil
		once()
	}
	return c.Context.Err()
}

// TestReplacedRoot: during a Put the repository's directory is moved away, and another one takes its
// place. The Put must fail, because no listing would show its object.
func TestReplacedRoot(t *testing.T) {
	for name, opts := range map[string]store.PutOptions{"put": {}, "if absent": {IfAbsent: true}} {
		for _, again := range []bool{true, false} {
			path := filepath.Join(t.TempDir(), "repo")
			assert.OK(t, os.Mkdir(path, 0o700))
			s := at(t, path)
			ctx := &interrupted{Context: t.Context(), dir: filepath.Join(path, "index"), once: func() {
				err := os.Rename(path, path+".old")
				if err == nil && again {
					err = os.Mkdir(path, 0o700)
				}
				// Another process removes the empty folder, so that the Put has to make it again.
				assert.OK(t, errors.Join(err, os.RemoveAll(filepath.Join(path+".old", "index"))))
			}}
			_, err := s.Put(ctx, "index/lock.exclusive", []byte("body"), opts)
			if ctx.once != nil {
				t.Fatalf("%s: nothing was replaced", name)
			}
			if !errors.Is(err, store.ErrNotFound) || !store.Permanent(err) || again && !strings.Contains(err.Error(), "was replaced") {
				t.Errorf("%s, another in its place %v: %v", name, again, err)
			}
			has(t, path+".old", "")
			if !again {
				continue
			}
			has(t, path, "")
			put(t, s, "index/lock.exclusive", "body")
			has(t, path, "index/ index/lock.exclusive")
		}
	}
}

// TestEndedWhileWriting: if a Put's context ends while it writes, the Put isn't applied, and leaves nothing.
func TestEndedWhileWriting(t *testing.T) {
	for name, opts := range map[string]store.PutOptions{"put": {}, "if absent": {IfAbsent: true}} {
		s, path := fresh(t)
		ended, cancel := context.WithCancel(t.Context())
		ctx := &interrupted{Context: ended, dir: filepath.Join(path, "index"), once: cancel}
		_, err := s.Put(ctx, "index/lock.exclusive", nil, opts)
		assert.That(t, errors.Is(err, context.Canceled) && ctx.once == nil, "%s: %v", name, err)
		has(t, path, "index/")
	}
}
