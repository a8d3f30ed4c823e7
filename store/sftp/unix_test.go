//go:build unix

package sftp

import (
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/repolock/repolock/internal/test/assert"
	"github.com/repolock/repolock/store"
)

// pipes makes a named pipe, and returns its key.
func pipes(t *testing.T, root, key string) []string {
	t.Helper()
	assert.OK(t, syscall.Mkfifo(filepath.Join(root, key), 0o600))
	return []string{key}
}

// TestModes: files and folders have the permissions of the repository's directory, whatever the umask.
func TestModes(t *testing.T) {
	for _, c := range []struct{ root, umask, dir, file fs.FileMode }{
		{0o700, 0, 0o700, 0o600},
		{0o700, 0o077, 0o700, 0o600},
		{0o770, 0o077, 0o770, 0o660},
		{0o755, 0o077, 0o755, 0o644},
		{0o775 | fs.ModeSetgid, 0o077, 0o775 | fs.ModeSetgid, 0o664},
	} {
		root := repository(t, c.root)
		s := inGo.on(t, root)
		old := syscall.Umask(int(c.umask))
		_, err := s.Put(t.Context(), "index/lock.shared/put", nil, store.PutOptions{})
		_, err2 := s.Put(t.Context(), "index/linked", nil, store.PutOptions{IfAbsent: true})
		syscall.Umask(old)
		assert.OK(t, err)
		assert.OK(t, err2)
		for name, want := range map[string]fs.FileMode{"index": c.dir, "index/lock.shared": c.dir, "index/lock.shared/put": c.file, "index/linked": c.file} {
			info, err := os.Stat(filepath.Join(root, name))
			assert.OK(t, err)
			assert.Equal(t, info.Mode()&^fs.ModeDir, want, "root %v, umask %o: %s has", c.root, c.umask, name)
		}
	}
}
