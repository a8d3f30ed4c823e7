package dir

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/repolock/repolock/internal/test/assert"
	"github.com/repolock/repolock/store"
)

// TestNoFlock: on a file system without flocks, a conditional put or delete is refused.
func TestNoFlock(t *testing.T) {
	s := opened(t)
	create(t, s, "k")
	_, obj, err := s.Get(t.Context(), "k", 1)
	assert.OK(t, err)
	s.flock = false
	assert.Is(t, s.DeleteIfMatch(t.Context(), "k", obj.ETag), store.ErrConditionUnsupported)
	_, err = s.Put(t.Context(), "k", nil, store.PutOptions{IfMatch: obj.ETag})
	assert.Is(t, err, store.ErrConditionUnsupported)
}

// TestNotGivenBack: a conditional delete has moved another program's file away, and can't give it its name back. It
// doesn't remove the file.
func TestNotGivenBack(t *testing.T) {
	s := opened(t)
	create(t, s, "k")
	_, obj, err := s.Get(t.Context(), "k", 1)
	assert.OK(t, err)
	moved := ""
	s.move = func(move func(from, to string) error, from, to string) error {
		moved = filepath.Join(s.path, to)
		return errors.Join(move(from, to), os.WriteFile(moved, []byte("of another"), 0o600), os.Mkdir(filepath.Join(s.path, from), 0o700))
	}
	assert.Is(t, s.DeleteIfMatch(t.Context(), "k", obj.ETag), store.ErrIrregular)
	left, err := os.ReadFile(moved)
	assert.That(t, err == nil && string(left) == "of another", "%q, %v", left, err)
}

// TestKinds: an error names the kind of a thing that isn't a file.
func TestKinds(t *testing.T) {
	for mode, want := range map[fs.FileMode]string{
		fs.ModeSymlink: "symbolic link", fs.ModeNamedPipe: "pipe", fs.ModeSocket: "socket", fs.ModeDevice: "special file",
	} {
		assert.That(t, strings.Contains(kind(mode|0o600), want), "%v: %s", mode, kind(mode))
	}
}
