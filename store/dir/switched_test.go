package dir

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/repolock/repolock/internal/flock"
	"github.com/repolock/repolock/internal/test/assert"
	"github.com/repolock/repolock/store"
	"github.com/repolock/repolock/store/internal/files"
)

// TestNoFlock: on a file system without flocks, a conditional put or delete is refused, and a put without a condition
// takes no flock.
func TestNoFlock(t *testing.T) {
	s := opened(t)
	create(t, s, "k")
	_, obj, err := s.Get(t.Context(), "k", 1)
	assert.OK(t, err)
	s.flock = false
	assert.Is(t, s.DeleteIfMatch(t.Context(), "k", obj.ETag), store.ErrConditionUnsupported)
	_, err = s.Put(t.Context(), "k", nil, store.PutOptions{IfMatch: obj.ETag})
	assert.Is(t, err, store.ErrConditionUnsupported)
	root, err := s.open()
	assert.OK(t, err)
	defer root.Close()
	unlock, err := lockRoot(t.Context(), root, flock.Try)
	assert.OK(t, err)
	defer unlock()
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	assert.OK(t, assert.Err(s.Put(ctx, "k", nil, store.PutOptions{})))
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

// TestChangedWhileListed: a name that was a folder's when it was listed, and is a file's now, isn't an error. Neither is
// a directory that was removed after it was opened.
func TestChangedWhileListed(t *testing.T) {
	s := opened(t)
	create(t, s, "index/lock.shared")
	s.scan = func(ctx context.Context, d *directory, wanted files.Wanted) ([]string, error) {
		return scan(ctx, d, func(name string) (file, folder bool) {
			file, folder = wanted(name)
			return file && name != "lock.shared", folder
		})
	}
	assert.Equal(t, len(keys(t, s)), 0)

	root, err := s.open()
	assert.OK(t, err)
	defer root.Close()
	assert.OK(t, os.Mkdir(filepath.Join(s.path, "gone"), 0o700))
	d, err := openDir(root, "gone")
	assert.OK(t, err)
	defer d.Close()
	assert.OK(t, os.Remove(filepath.Join(s.path, "gone")))
	names, err := scan(t.Context(), d, func(string) (file, folder bool) { return true, true })
	assert.That(t, err == nil && names == nil, "%q, %v", names, err)
}

// TestMissingElsewhere: on a file system that isn't local, an object that isn't listed is missing.
func TestMissingElsewhere(t *testing.T) {
	s := opened(t)
	s.local = false
	_, _, err := s.Get(t.Context(), "k", 1)
	assert.Is(t, err, store.ErrNotFound)
}

// TestListingEnds: a scan whose time is over reads no further.
func TestListingEnds(t *testing.T) {
	s := opened(t)
	for i := range 1025 {
		assert.OK(t, os.WriteFile(filepath.Join(s.path, fmt.Sprint(i)), nil, 0o600))
	}
	root, err := s.open()
	assert.OK(t, err)
	defer root.Close()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	names, err := scan(ctx, root, func(string) (file, folder bool) { return true, false })
	assert.Is(t, err, context.Canceled)
	assert.Equal(t, len(names), 0)
}

// TestGoneWhileLooked: a name that is gone by the time of the look is no object of another program.
func TestGoneWhileLooked(t *testing.T) {
	root, err := opened(t).open()
	assert.OK(t, err)
	defer root.Close()
	found, err := isOther(t.Context(), root, "gone", "", "index/")
	assert.That(t, !found && err == nil, "%t, %v", found, err)
}

// TestBothConditions: no object meets both conditions of a put.
func TestBothConditions(t *testing.T) {
	s := opened(t)
	_, err := s.Put(t.Context(), "k", nil, store.PutOptions{IfAbsent: true, IfMatch: "e"})
	assert.Is(t, err, store.ErrPrecondition)
	assert.Equal(t, len(keys(t, s)), 0)
}

// TestReadAll: a file that grows or shrinks while it is read has the bytes that were read.
func TestReadAll(t *testing.T) {
	for _, body := range []string{"", "abc", "abcd", strings.Repeat("a", 5000)} {
		got, err := readAll(strings.NewReader(body), 3)
		assert.That(t, err == nil && string(got) == body, "%.9q: %.9q, %v", body, got, err)
	}
	_, err := readAll(iotest.ErrReader(io.ErrClosedPipe), 3)
	assert.Is(t, err, io.ErrClosedPipe)
}

// TestStatTag: a file that replaces another one, with the same size and time, has another ETag.
func TestStatTag(t *testing.T) {
	s := opened(t)
	var tags []string
	for _, name := range []string{"a", "b"} {
		path := filepath.Join(s.path, name)
		assert.OK(t, os.WriteFile(path, nil, 0o600))
		assert.OK(t, os.Chtimes(path, time.Unix(1, 0), time.Unix(1, 0)))
		info, err := os.Stat(path)
		assert.OK(t, err)
		tags = append(tags, statTag(info))
	}
	assert.That(t, tags[0] != tags[1] || runtime.GOOS == "windows", "%q", tags)
}

// TestFileAboveAPut: a put below a file is refused, because the file is in the place of a folder.
func TestFileAboveAPut(t *testing.T) {
	s := opened(t)
	create(t, s, "index")
	_, err := s.Put(t.Context(), "index/lock.exclusive", nil, store.PutOptions{})
	assert.Is(t, err, store.ErrIrregular)
}

// TestFailedExchange: an exchange that the disk fails is an error of the disk, and no unmet condition.
func TestFailedExchange(t *testing.T) {
	s := opened(t)
	create(t, s, "k")
	_, obj, err := s.Get(t.Context(), "k", 1)
	assert.OK(t, err)
	s.move = func(func(from, to string) error, string, string) error { return os.ErrClosed }
	_, err = s.Put(t.Context(), "k", []byte("new"), store.PutOptions{IfMatch: obj.ETag})
	assert.Is(t, err, os.ErrClosed)
}
