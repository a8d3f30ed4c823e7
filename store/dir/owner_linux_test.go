package dir_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"syscall"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/repolock/repolock/store"
	"github.com/repolock/repolock/store/dir"
)

// user runs a function with the rights of another user, who is in one more group: in a thread
// of its own, which ends with it.
func user(t *testing.T, id int, group uint32, do func()) {
	t.Helper()
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // and never unlocked
		_, _, errno := unix.RawSyscall(unix.SYS_SETGROUPS, 1, uintptr(unsafe.Pointer(&group)), 0)
		var err error
		switch {
		case errno != 0:
			err = errno
		default:
			if err = unix.Setfsgid(id); err == nil {
				err = unix.Setfsuid(id)
			}
		}
		if err == nil {
			do()
		}
		done <- err
	}()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
}

const (
	alice = 4001
	bob   = 4002
	crew  = 5000
)

// repository returns a repository of a user and a group, which all users can reach.
func repository(t *testing.T, uid, gid int, mode fs.FileMode) string {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("only root can act for other users")
	}
	path := filepath.Join(t.TempDir(), "repo")
	if err := os.Mkdir(path, 0o700); err != nil {
		t.Fatal(err)
	}
	for dir := filepath.Dir(path); dir != filepath.Dir(dir); dir = filepath.Dir(dir) {
		if info, err := os.Stat(dir); err == nil && info.Mode().Perm()&0o005 != 0o005 {
			if err := os.Chmod(dir, info.Mode().Perm()|0o005); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := os.Chown(path, uid, gid); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(path, mode); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestRootLeavesItToTheOwner: an object that root puts into another user's repository belongs
// to that user, who can read, replace and delete it.
func TestRootLeavesItToTheOwner(t *testing.T) {
	for _, mode := range []fs.FileMode{0o700, 0o750, 0o755} {
		path := repository(t, alice, crew, mode)
		old := syscall.Umask(0o077)
		s := at(t, path)
		put(t, s, "index/lock.exclusive", "root's")
		put(t, s, "index/lock.shared/x", "root's")
		_, err := s.Put(t.Context(), "index/lock.intent/x", []byte("root's"), store.PutOptions{IfAbsent: true})
		syscall.Umask(old)
		if err != nil {
			t.Fatal(err)
		}
		user(t, alice, alice, func() { takesOver(t, path, "alice") })
	}
}

// TestGroupShares: each member of a repository's group can use it, whatever the umask of the
// others, and although one of them left locks behind.
func TestGroupShares(t *testing.T) {
	for _, mode := range []fs.FileMode{0o775 | fs.ModeSetgid, 0o770 | fs.ModeSetgid, 0o770} {
		for _, umask := range []int{0o022, 0o077} {
			path := repository(t, 0, crew, mode)
			old := syscall.Umask(umask)
			user(t, alice, crew, func() {
				s, err := dir.Open(t.Context(), path, dir.Options{})
				if err != nil {
					t.Error(err)
					return
				}
				for _, key := range []string{"index/lock.exclusive", "index/lock.shared/x", "index/lock.intent/x"} {
					if _, err := s.Put(t.Context(), key, []byte("alice's"), store.PutOptions{IfAbsent: true}); err != nil {
						t.Errorf("%v, umask %o: %v", mode, umask, err)
					}
				}
			})
			user(t, bob, crew, func() { takesOver(t, path, "bob") })
			syscall.Umask(old)
		}
	}
}

// takesOver reads, replaces and deletes the locks of another user.
func takesOver(t *testing.T, path, who string) {
	s, err := dir.Open(t.Context(), path, dir.Options{})
	if err != nil {
		t.Errorf("%s: %v", who, err)
		return
	}
	for _, key := range []string{"index/lock.exclusive", "index/lock.shared/x", "index/lock.intent/x"} {
		if body, _, err := s.Get(t.Context(), key, 100); err != nil || len(body) == 0 {
			t.Errorf("%s gets %q: %q, %v", who, key, body, err)
		}
		if f, err := os.OpenFile(filepath.Join(path, key), os.O_RDWR, 0); err != nil {
			t.Errorf("%s opens %v", who, err)
		} else {
			f.Close()
		}
		if _, err := s.Put(t.Context(), key+"2", nil, store.PutOptions{}); err != nil {
			t.Errorf("%s: %v", who, err)
		}
		for _, key := range []string{key, key + "2"} {
			if err := s.Delete(t.Context(), key); err != nil {
				t.Errorf("%s: %v", who, err)
			}
		}
	}
}
