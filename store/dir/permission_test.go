//go:build unix

package dir_test

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/repolock/repolock/internal/test/assert"
	"github.com/repolock/repolock/store"
	"github.com/repolock/repolock/store/dir"
)

// chmod sets a mode for the rest of the test.
func chmod(t *testing.T, path string, mode fs.FileMode) {
	t.Helper()
	assert.OK(t, os.Chmod(path, mode))
	t.Cleanup(func() { _ = os.Chmod(path, 0o700) }) // so that it can be removed
}

// TestOpenForbiddenDirectory: the error shows the operation, the path and the cause once.
func TestOpenForbiddenDirectory(t *testing.T) {
	_, path := fresh(t)
	chmod(t, path, 0)
	asNobody(t, path, func() {
		for _, path := range []string{path, filepath.Join(path, "below")} {
			_, err := dir.Open(t.Context(), path)
			assert.Is(t, err, store.ErrPermission)
			assert.Is(t, err, fs.ErrPermission)
			assert.Equal(t, fmt.Sprint(err), fmt.Sprintf("open %q: permission denied", path))
		}
	})
}

// TestErrorsNameTheDirectory: an error shows what can't be done, and the full path of the directory or
// file. It shows no system call and no temporary file. Requests that need no permission succeed.
func TestErrorsNameTheDirectory(t *testing.T) {
	for _, test := range []struct {
		closed string // below the repository
		mode   fs.FileMode
		says   map[string]string // "" for a success
	}{
		{"", 0o555, map[string]string{"put new/k": `can't write into "REPO"`}},
		{"index", 0o555, map[string]string{
			"put index/lock.exclusive": `can't write into "REPO/index"`, "replace index/lock.exclusive": `can't write into "REPO/index"`,
			"put index/new/k": `can't write into "REPO/index"`, "delete index/lock.exclusive": `can't delete from "REPO/index"`,
			"get index/lock.exclusive": "", "list index/lock.": "", "delete index/missing": "", "delete missing/missing": "",
		}},
		{"index/lock.shared", 0o555, map[string]string{"put index/lock.shared/k": `can't write into "REPO/index/lock.shared"`}},
		{"index", 0, map[string]string{
			"put index/k": `can't open "REPO/index"`, "get index/lock.exclusive": `can't open "REPO/index"`,
			"delete index/lock.exclusive": `can't open "REPO/index"`, "list index/lock.": `can't open "REPO/index"`,
		}},
		{"index/lock.exclusive", 0, map[string]string{"get index/lock.exclusive": `can't open "REPO/index/lock.exclusive"`}},
		{"", 0, map[string]string{"get index/lock.exclusive": `can't open "REPO"`, "list ": `can't open "REPO"`, "put k": `can't open "REPO"`}},
	} {
		s, path := fresh(t)
		put(t, s, "index/lock.exclusive", "body")
		put(t, s, "index/lock.shared/x", "body")
		chmod(t, filepath.Join(path, test.closed), test.mode)
		asNobody(t, path, func() {
			for request, says := range test.says {
				op, key, _ := strings.Cut(request, " ")
				var err error
				switch op {
				case "put":
					_, err = s.Put(t.Context(), key, nil, store.PutOptions{IfAbsent: true})
				case "replace":
					op = "put"
					_, err = s.Put(t.Context(), key, nil, store.PutOptions{})
				case "get":
					_, _, err = s.Get(t.Context(), key, 100)
				case "delete":
					err = s.Delete(t.Context(), key)
				case "list":
					_, err = s.List(t.Context(), key, "")
				}
				if says == "" {
					assert.Is(t, err, nil, request)
					continue
				}
				want := fmt.Sprintf("%s %q: %s: permission denied", op, key, strings.ReplaceAll(says, "REPO", path))
				assert.Is(t, err, store.ErrPermission)
				assert.Is(t, err, syscall.EACCES)
				assert.Equal(t, fmt.Sprint(err), want, "%q with mode %o", test.closed, test.mode)
			}
		})
		_ = os.Chmod(filepath.Join(path, test.closed), 0o700)
	}
}

// TestUmaskOfNothing: a process removes a new folder that it can't open. The error names the folder above.
func TestUmaskOfNothing(t *testing.T) {
	s, path := fresh(t)
	asNobody(t, path, func() {
		defer syscall.Umask(syscall.Umask(0o777))
		_, err := s.Put(t.Context(), "index/k", nil, store.PutOptions{})
		assert.Equal(t, fmt.Sprint(err), fmt.Sprintf("put %q: can't write into %q: permission denied", "index/k", path))
	})
	has(t, path, "")
}

// TestUnreadableFile: List shows an unreadable file, because it might be a lock. It can be replaced by its
// listed ETag.
func TestUnreadableFile(t *testing.T) {
	s, path := fresh(t)
	put(t, s, "index/lock.exclusive", "body")
	chmod(t, filepath.Join(path, "index/lock.exclusive"), 0)
	asNobody(t, path, func() {
		page, err := s.List(t.Context(), "index/lock.", "")
		if err != nil || len(page.Objects) != 1 || !strings.HasPrefix(page.Objects[0].ETag, "s-") || page.Objects[0].Size != 4 {
			t.Fatalf("listed %+v, %v", page.Objects, err)
		}
		_, _, err = s.Get(t.Context(), "index/lock.exclusive", 100)
		assert.Is(t, err, store.ErrPermission, "get")
		opts := store.PutOptions{IfMatch: page.Objects[0].ETag}
		assert.Is(t, assert.Err(s.Put(t.Context(), "index/lock.exclusive", []byte("new"), opts)), nil, "put if match")
		assert.Equal(t, read(t, s, "index/lock.exclusive"), "new")
	})
}

// TestUnreadableDirectory: a listing fails if it can't read a directory that might have locks.
func TestUnreadableDirectory(t *testing.T) {
	for _, mode := range []fs.FileMode{0, 0o300, 0o600} { // no permission, none to list, none to enter
		for _, dir := range []string{"", "index", "index/lock.shared"} {
			s, path := fresh(t)
			put(t, s, "index/lock.shared/x", "body")
			chmod(t, filepath.Join(path, dir), mode)
			asNobody(t, path, func() {
				page, err := s.List(t.Context(), "index/lock.", "")
				assert.Is(t, err, store.ErrPermission, "%q with mode %o: listed %+v", dir, mode, page.Objects)
			})
			_ = os.Chmod(filepath.Join(path, dir), 0o700)
		}
	}
}

// TestSkippedDirectory: a listing shows a directory that it can't read as one object, in order, if the caller ignores all
// keys below it. It fails for any other directory.
func TestSkippedDirectory(t *testing.T) {
	for _, mode := range []fs.FileMode{0, 0o300, 0o600} { // no permission, none to list, none to enter
		s, path := fresh(t)
		for _, key := range []string{"index/lock.intent/a/lost/x", "index/lock.shared/lost-x", "index/lock.shared/lost/x", "index/lock.shared/lost0", "index/lock.shared/other/x"} {
			put(t, s, key, "body")
		}
		for _, dir := range []string{"index/lock.intent/a/lost", "index/lock.shared/lost", "index/lock.shared/other"} {
			chmod(t, filepath.Join(path, dir), mode)
		}
		asNobody(t, path, func() {
			lists := func(skipped ...string) (store.Page, error) {
				return s.List(store.Skipping(t.Context(), func(folder string) bool { return slices.Contains(skipped, folder) }), "index/lock.", "")
			}
			all := []string{"index/lock.intent/a/lost/", "index/lock.shared/lost/", "index/lock.shared/other/"}
			for i := range all {
				page, err := lists(slices.Delete(slices.Clone(all), i, i+1)...)
				assert.Is(t, err, store.ErrPermission, "%q with mode %o: listed %+v", all[i], mode, page.Objects)
			}
			page, err := lists(all...)
			assert.OK(t, err)
			var keys []string
			for _, o := range page.Objects {
				keys = append(keys, o.Key)
				assert.That(t, strings.HasSuffix(o.Key, "/") == (o.Size == -1), "%+v", o)
			}
			assert.Equal(t, keys, []string{"index/lock.intent/a/lost/", "index/lock.shared/lost-x", "index/lock.shared/lost/", "index/lock.shared/lost0", "index/lock.shared/other/"})
		})
	}
}

// TestModes: files and folders have the permissions of the repository's directory, whatever the umask.
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
		assert.OK(t, os.Mkdir(path, 0o700))
		assert.OK(t, os.Chmod(path, test.root))
		s := at(t, path)
		old := syscall.Umask(int(test.umask))
		put(t, s, "index/put", "")
		put(t, s, "index/lock.shared/put", "")
		_, err := s.Put(t.Context(), "index/linked", nil, store.PutOptions{IfAbsent: true})
		syscall.Umask(old)
		assert.OK(t, err)
		for name, want := range map[string]fs.FileMode{
			"index": test.dir, "index/lock.shared": test.dir, "index/lock.shared/put": test.file, "index/put": test.file, "index/linked": test.file,
		} {
			info, err := os.Stat(filepath.Join(path, name))
			assert.OK(t, err)
			assert.Equal(t, info.Mode()&^fs.ModeDir, want, "root %v, umask %o: %s has", test.root, test.umask, name)
		}
	}
}
