//go:build unix

package lockfile

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/repolock/repolock/internal/test/assert"
)

// TestPipeIsNotWaitedFor: a pipe or a link that takes the place of a file while it is read isn't read, and isn't
// waited for.
func TestPipeIsNotWaitedFor(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "lock")
	assert.OK(t, os.WriteFile(path, []byte("x"), 0o600))
	f, err := Read(path, 1)
	assert.That(t, err == nil && f.Unreadable == "" && string(f.Body) == "x", "%+v, %v", f, err)
	for name, create := range map[string]func(string) error{
		"pipe": func(path string) error { return syscall.Mkfifo(path, 0o600) },
		"link": func(path string) error { return os.Symlink("lock", path) },
	} {
		now := &File{Path: filepath.Join(dir, name), Info: f.Info}
		assert.OK(t, create(now.Path))
		moved, err := now.read(1)
		assert.That(t, err == nil && (moved || now.Err != nil) && now.Body == nil, "%s: %+v, %v", name, now, err)
		if there, err := Read(now.Path, 1); err != nil || there.Unreadable == "" {
			t.Errorf("%s: %+v, %v", name, there, err)
		}
	}
}
