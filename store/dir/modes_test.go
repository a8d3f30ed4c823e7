//go:build unix

package dir_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/repolock/repolock/store"
)

// TestModes: files and folders have the permissions of the repository, whatever the umask of
// their writer.
func TestModes(t *testing.T) {
	for _, test := range []struct{ root, umask, dir, file fs.FileMode }{
		{0o700, 0, 0o700, 0o600},
		{0o700, 0o077, 0o700, 0o600},
		{0o750, 0o022, 0o750, 0o640},
		{0o770, 0o022, 0o770, 0o660},
		{0o770, 0o077, 0o770, 0o660},
		{0o755, 0o077, 0o755, 0o644},
		{0o777, 0o027, 0o777, 0o666},
		{0o775 | fs.ModeSetgid, 0o022, 0o775 | fs.ModeSetgid, 0o664},
		{0o770 | fs.ModeSetgid, 0o077, 0o770 | fs.ModeSetgid, 0o660},
	} {
		path := filepath.Join(t.TempDir(), "repo")
		if err := os.Mkdir(path, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(path, test.root); err != nil {
			t.Fatal(err)
		}
		s := at(t, path)
		old := syscall.Umask(int(test.umask))
		put(t, s, "index/put", "")
		put(t, s, "index/lock.shared/put", "")
		_, err := s.Put(t.Context(), "index/linked", nil, store.PutOptions{IfAbsent: true})
		syscall.Umask(old)
		if err != nil {
			t.Fatal(err)
		}
		for name, want := range map[string]fs.FileMode{
			"index": test.dir, "index/lock.shared": test.dir, "index/lock.shared/put": test.file, "index/put": test.file, "index/linked": test.file,
		} {
			info, err := os.Stat(filepath.Join(path, name))
			if err != nil {
				t.Fatal(err)
			}
			if got := info.Mode() &^ fs.ModeDir; got != want {
				t.Errorf("root %v, umask %o: %s has %v, want %v", test.root, test.umask, name, got, want)
			}
		}
	}
}
