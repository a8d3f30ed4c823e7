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

func TestModes(t *testing.T) {
	for _, test := range []struct{ root, umask, dir, file fs.FileMode }{
		{0o700, 0, 0o700, 0o600},
		{0o750, 0, 0o750, 0o640},
		{0o770, 0, 0o770, 0o660},
		{0o755, 0, 0o755, 0o644},
		{0o777, 0, 0o777, 0o666},
		{0o777, 0o027, 0o750, 0o640},
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
		_, err := s.Put(t.Context(), "index/linked", nil, store.PutOptions{IfAbsent: true})
		syscall.Umask(old)
		if err != nil {
			t.Fatal(err)
		}
		for name, want := range map[string]fs.FileMode{
			"index": test.dir, "index/put": test.file, "index/linked": test.file,
		} {
			info, err := os.Stat(filepath.Join(path, name))
			if err != nil {
				t.Fatal(err)
			}
			if got := info.Mode().Perm(); got != want {
				t.Errorf("root %o, umask %o: %s has %o, want %o", test.root, test.umask, name, got, want)
			}
		}
	}
}
