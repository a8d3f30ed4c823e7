//go:build linux || darwin

package dir

import (
	"errors"
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/repolock/repolock/internal/test/assert"
	"github.com/repolock/repolock/store"
	"github.com/repolock/repolock/store/internal/files"
)

// beside is what a program that takes no flock, such as an SFTP server, does with a file: it deletes the file, or
// replaces it by one with this body.
func beside(t *testing.T, path, what string) {
	t.Helper()
	switch body, replaces := strings.CutPrefix(what, "put "); {
	case replaces:
		assert.OK(t, os.WriteFile(path+".new", []byte(body), 0o600))
		assert.OK(t, os.Rename(path+".new", path))
	case what == "delete":
		assert.OK(t, os.Remove(path))
	}
}

// TestBesideOneWithoutFlock: a program that takes no flock deletes or replaces a file after its comparison, ahead of
// each step of the conditional request. A file that it deletes stays deleted, and a file that it puts stays.
func TestBesideOneWithoutFlock(t *testing.T) {
	for _, c := range []struct {
		steps string // what the other program does ahead of each step
		put   bool
		want  string // the body that stays, "" for none
		fails bool
	}{
		{"", true, "next", false},
		{"delete", true, "", true},
		{"put other", true, "other", true},
		{"put other,delete", true, "", true},
		{"put other,put newer", true, "newer", true},
		{"put other,put newer,delete", true, "", true},
		{"", false, "", false},
		{"delete", false, "", false},
		{"put other", false, "other", true},
	} {
		s, obj := stored(t)
		path := s.path + "/" + contended
		steps := append(strings.Split(c.steps, ","), make([]string, 9)...)
		other := renames(t, s, func() {
			beside(t, path, steps[0])
			steps = steps[1:]
		})
		if c.put {
			_, perr := other.Put(t.Context(), contended, []byte("next"), store.PutOptions{IfMatch: obj.ETag})
			assert.Equal(t, errors.Is(perr, store.ErrPrecondition), c.fails, "put beside %q: %v", c.steps, perr)
		} else {
			derr := other.DeleteIfMatch(t.Context(), contended, obj.ETag)
			assert.Equal(t, errors.Is(derr, store.ErrPrecondition), c.fails, "delete beside %q: %v", c.steps, derr)
		}
		body, err1 := os.ReadFile(path)
		assert.Equal(t, string(body), c.want, "put %t beside %q: %v", c.put, c.steps, err1)
		assert.Equal(t, errors.Is(err1, os.ErrNotExist), c.want == "", "put %t beside %q: %v", c.put, c.steps, err1)
		entries, _ := os.ReadDir(s.path + "/index/lock.shared")
		for _, e := range entries {
			assert.That(t, !files.IsTemp(e.Name()), "put %t beside %q left %s", c.put, c.steps, e.Name())
		}
	}
}

// TestWithoutExchange: on a file system that can't exchange files, or that renames instead, a conditional put replaces
// the file, and writes nothing where there is none.
func TestWithoutExchange(t *testing.T) {
	for name, exchange := range map[string]func(s *Store, from, to string) error{
		"it refuses": func(*Store, string, string) error { return cant("write into", "", syscall.EINVAL) },
		"it renames": func(s *Store, from, to string) error {
			return os.Rename(s.path+"/index/lock.shared/"+from, s.path+"/index/lock.shared/"+to)
		},
	} {
		s, obj := stored(t)
		steps := 0
		s.move = func(step func(from, to string) error, from, to string) error {
			if steps++; steps == 1 {
				return exchange(s, from, to)
			}
			return step(from, to)
		}
		_, err := s.Put(t.Context(), contended, []byte("next"), store.PutOptions{IfMatch: obj.ETag})
		assert.Is(t, err, nil, name)
		body, _, err := s.Get(t.Context(), contended, 100)
		assert.That(t, err == nil && string(body) == "next", "%s: %q, %v", name, body, err)
		steps = 0
		assert.OK(t, s.Delete(t.Context(), contended))
		_, err = s.Put(t.Context(), contended, []byte("more"), store.PutOptions{IfMatch: obj.ETag})
		assert.Is(t, err, store.ErrPrecondition, name)
	}
}

// TestMovesNothingOfOthers: a conditional deletion of a file that has another ETag doesn't move it, because a reader
// would miss it meanwhile.
func TestMovesNothingOfOthers(t *testing.T) {
	s, _ := stored(t)
	other := renames(t, s, func() { t.Error("the file is moved away") })
	assert.Is(t, other.DeleteIfMatch(t.Context(), contended, "another"), store.ErrPrecondition)
}
