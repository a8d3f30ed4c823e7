//go:build unix

package dir_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/repolock/repolock/store"
)

// interrupted is a context that calls a function in the middle of a Put, when its temporary
// file exists.
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

// TestReplacedRoot: the repository's directory is moved away, and another one put in its
// place, while a Put is under way that has to make its directory again. The Put must not
// succeed: no listing of the new directory shows an object in the old one.
func TestReplacedRoot(t *testing.T) {
	for name, opts := range map[string]store.PutOptions{"put": {}, "if absent": {IfAbsent: true}} {
		for _, again := range []bool{true, false} {
			path := filepath.Join(t.TempDir(), "repo")
			if err := os.Mkdir(path, 0o700); err != nil {
				t.Fatal(err)
			}
			s := at(t, path)
			ctx := &interrupted{Context: t.Context(), dir: filepath.Join(path, "index"), once: func() {
				err := os.Rename(path, path+".old")
				if err == nil && again {
					err = os.Mkdir(path, 0o700)
				}
				// Another process removes the old, empty directory.
				if err := errors.Join(err, os.RemoveAll(filepath.Join(path+".old", "index"))); err != nil {
					t.Fatal(err)
				}
			}}
			_, err := s.Put(ctx, "index/lock.exclusive", []byte("body"), opts)
			if ctx.once != nil {
				t.Fatalf("%s: nothing was replaced", name)
			}
			if !errors.Is(err, store.ErrNotFound) || !store.Permanent(err) || again && !strings.Contains(err.Error(), "was replaced") {
				t.Errorf("%s, another in its place %v: %v", name, again, err)
			}
			if got := files(t, path+".old"); got != "" {
				t.Errorf("%s: left in the old one: %s", name, got)
			}
			if !again {
				continue
			}
			if got := files(t, path); got != "" {
				t.Errorf("%s: left in the new one: %s", name, got)
			}
			// The next put goes into the present repository.
			put(t, s, "index/lock.exclusive", "body")
			if got := files(t, path); got != "index/ index/lock.exclusive" {
				t.Errorf("%s: the next put has made %q", name, got)
			}
		}
	}
}
