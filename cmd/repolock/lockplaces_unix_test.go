//go:build unix

package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/repolock/repolock/internal/regular"
	"github.com/repolock/repolock/replock"
	"github.com/repolock/repolock/store/dir"
)

// TestNoFileInAPlaceOfLocks: a file that repolock writes isn't put in a place of locks, of this
// repository or another, whether a flag names it, the environment or the configuration file. That is
// refused before anything is written, locked or run.
func TestNoFileInAPlaceOfLocks(t *testing.T) {
	t.Setenv("XDG_RUNTIME_DIR", newDesk(t).run)
	for _, c := range []struct {
		code    int
		says    string
		command string // FILE stands for one
	}{
		{78, "--metrics-file: ", "backup --metrics-file FILE -- touch RAN"},
		{78, "--metrics-file: ", "backup --audit DIR/log --metrics-file FILE -- touch RAN"},
		{78, "--audit: ", "prune --audit FILE -- touch RAN"},
		{78, "--audit: ", "break-lock --yes --audit FILE"},
		{78, "--log: ", "acquire --shared --for-pid PID --log FILE"},
		{78, "--audit: ", "acquire --shared --for-pid PID --log DIR/log --audit FILE"},
		{78, "--metrics-file: ", "acquire --shared --for-pid PID --log DIR/log --metrics-file FILE"},
		{78, "REPOLOCK_AUDIT: ", "AUDIT=FILE backup -- touch RAN"},
		{78, "audit in ", "--config audit backup -- touch RAN"},
		{78, "metrics-file in ", "--config metrics-file backup -- touch RAN"},
		{78, "--svg: ", "history DIR/audit --svg FILE"},
		{64, "--html: ", "torture --duration 1s --html FILE"}, // 78 is a violation
		{64, "--log: ", "torture --duration 1s --log FILE"},
		{64, "--html: ", "torture --rounds 1 --with {} --html FILE"},
		{64, "--log: ", "torture --rounds 1 --with {} --log FILE"},
	} {
		t.Run(c.command, func(t *testing.T) {
			top := t.TempDir()
			at := func(name string) string { return filepath.Join(top, name) }
			write(t, at("repo/index/lock.shared/x"), "a lock")
			write(t, at("other/index/lock.exclusive"), "another lock")
			write(t, at("audit"), `{"event":"lock_acquired","timestamp":"2026-03-07T01:00:00Z"}`+"\n")
			if err := os.Symlink("other/index/lock.exclusive", at("link")); err != nil {
				t.Fatal(err)
			}
			t.Setenv("REPOLOCK_REPO", at("repo"))
			for _, name := range []string{"repo/index/lock.exclusive", "repo/index/lock.shared/log", "repo/index/locks/photos/lock.exclusive", "other/index/lock.exclusive", "link"} {
				t.Setenv("REPOLOCK_AUDIT", "")
				args := strings.Fields(strings.NewReplacer("FILE", at(name), "DIR", top, "RAN", at("ran"), "PID", fmt.Sprint(os.Getpid())).Replace(c.command))
				if audit, ok := strings.CutPrefix(args[0], "AUDIT="); ok {
					t.Setenv("REPOLOCK_AUDIT", audit)
					args = args[1:]
				}
				if args[0] == "--config" {
					os.Unsetenv("REPOLOCK_AUDIT")
					write(t, at("config.toml"), "[defaults]\n"+args[1]+" = '"+at(name)+"'\n")
					args[1] = at("config.toml")
				}
				before := tree(t, top)
				var out, errs bytes.Buffer
				code := run(args, &out, &errs)
				if code != c.code || !strings.HasPrefix(errs.String(), "repolock: error: "+c.says) || !strings.Contains(errs.String(), " is a place of locks: name a file elsewhere\n") {
					t.Errorf("%s: exit code %d\n%s", name, code, errs.String())
				}
				if diff := cmp.Diff(before, tree(t, top)); diff != "" || out.Len() > 0 {
					t.Errorf("%s: files changed:\n%s%s", name, diff, out.String())
				}
			}
		})
	}
}

// TestPlacesOfLocks: each object of a lock is in a place where repolock writes no other file.
func TestPlacesOfLocks(t *testing.T) {
	for _, name := range []string{"", "photos"} {
		repo := t.TempDir()
		s, err := dir.Open(t.Context(), repo, dir.Options{})
		if err != nil {
			t.Fatal(err)
		}
		l, err := replock.New(s, replock.Options{Name: name})
		if err != nil {
			t.Fatal(err)
		}
		for _, mode := range []replock.Mode{replock.Shared, replock.Exclusive} {
			var lock *replock.Lock
			if mode == replock.Shared {
				lock, err = l.Shared(t.Context(), "backup")
			} else {
				lock, err = l.Exclusive(t.Context(), "prune", replock.Fence())
			}
			if err != nil {
				t.Fatal(err)
			}
			objects := tree(t, repo)
			if len(objects) == 0 {
				t.Error("no objects")
			}
			for object := range objects {
				if regular.Outside(filepath.Join(repo, object)) == nil {
					t.Errorf("%s can be overwritten", object)
				}
			}
			if err := lock.Release(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
	}
}
