package dir_test

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/repolock/repolock/store"
	"github.com/repolock/repolock/store/dir"
)

// The tests of this file need a disk of their own. They run in a process with its own mounts:
// root's, or another user's in a user namespace if the system allows those.

func init() {
	scripts["full"] = full
	scripts["read-only"] = readOnly
	scripts["unmounted"] = unmounted
	scripts["file size limit"] = fileSizeLimit
}

func inMounts(t *testing.T, script string) {
	t.Helper()
	attr := &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS}
	if os.Geteuid() != 0 {
		attr = &syscall.SysProcAttr{
			Cloneflags:  syscall.CLONE_NEWNS | syscall.CLONE_NEWUSER,
			UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}},
			GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}},
		}
	}
	probe := exec.CommandContext(t.Context(), "true")
	probe.SysProcAttr = attr
	if err := probe.Run(); err != nil {
		t.Skipf("this system doesn't allow a process to have mounts of its own: %v", err)
	}
	run(t, script, attr)
}

func run(t *testing.T, script string, attr *syscall.SysProcAttr) {
	t.Helper()
	exe, err := os.Executable()
	must(t, err)
	cmd := exec.CommandContext(t.Context(), exe, t.TempDir())
	cmd.Env = append(os.Environ(), roleEnv+"="+script)
	cmd.SysProcAttr = attr
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v: %s", err, bytes.TrimSpace(out))
	}
}

func TestDiskFull(t *testing.T)      { inMounts(t, "full") }
func TestReadOnlyMount(t *testing.T) { inMounts(t, "read-only") }
func TestUnmounted(t *testing.T)     { inMounts(t, "unmounted") }

// TestFileSizeLimit: on every system a file size limit makes a write fail in the middle.
func TestFileSizeLimit(t *testing.T) { run(t, "file size limit", nil) }

// mount makes a repository with a lock on a disk of its own.
func mount(path string) (store.Store, error) {
	if err := unix.Mount("tmpfs", path, "tmpfs", 0, "size=64k"); err != nil {
		return nil, fmt.Errorf("mount: %w", err)
	}
	return withLock(path)
}

// withLock opens a repository, and puts a lock into it.
func withLock(path string) (store.Store, error) {
	s, err := dir.Open(background, path, dir.Options{})
	if err == nil {
		_, err = s.Put(background, "index/lock.exclusive", []byte("body"), store.PutOptions{})
	}
	return s, err
}

// full fills a disk: stored objects stay, and failed puts leave nothing.
func full(path string) error {
	s, err := mount(path)
	if err != nil {
		return err
	}
	body := bytes.Repeat([]byte("x"), 100_000)
	return refuse(s, path, func(opts store.PutOptions, key string) error {
		_, err := s.Put(background, key, body, opts)
		if !errors.Is(err, store.ErrFull) || !errors.Is(err, unix.ENOSPC) || store.Permanent(err) {
			return fmt.Errorf("put %q %+v: %w", key, opts, err)
		}
		return says(err, key, fmt.Sprintf("no space left in the repository: can't write into %q: no space left on device", filepath.Join(path, filepath.Dir(key))))
	})
}

// says compares the text of a Put's error.
func says(err error, key, want string) error {
	if want = fmt.Sprintf("put %q: %s", key, want); err.Error() != want {
		return fmt.Errorf("%w, want %s", err, want)
	}
	return nil
}

// refuse makes every kind of Put fail, and checks the directory then.
func refuse(s store.Store, path string, put func(opts store.PutOptions, key string) error) error {
	_, obj, err := s.Get(background, "index/lock.exclusive", 100)
	if err != nil {
		return err
	}
	for _, opts := range []store.PutOptions{{}, {Durable: true}, {IfMatch: obj.ETag}} {
		if err := put(opts, "index/lock.exclusive"); err != nil {
			return err
		}
	}
	for _, opts := range []store.PutOptions{{}, {IfAbsent: true}} {
		if err := put(opts, "new/new"); err != nil {
			return err
		}
	}
	if body, _, err := s.Get(background, "index/lock.exclusive", 100); err != nil || string(body) != "body" {
		return fmt.Errorf("the old object is %q, %w", body, err)
	}
	var left []string
	err = filepath.WalkDir(path, func(name string, _ fs.DirEntry, err error) error {
		left = append(left, strings.TrimPrefix(name, path))
		return err
	})
	if got := strings.Join(left, " "); got != " /index /index/lock.exclusive" {
		return fmt.Errorf("left %q", got)
	}
	return err
}

func readOnly(path string) error {
	if _, err := mount(path); err != nil {
		return err
	}
	if err := unix.Mount("", path, "", unix.MS_REMOUNT|unix.MS_RDONLY, ""); err != nil {
		return fmt.Errorf("remount: %w", err)
	}
	s, err := dir.Open(background, path, dir.Options{})
	if err != nil {
		return err
	}
	page, err := s.List(background, "index/lock.", "")
	if err != nil || len(page.Objects) != 1 {
		return fmt.Errorf("listed %+v, %w", page.Objects, err)
	}
	if err := s.Delete(background, "index/lock.exclusive"); !errors.Is(err, store.ErrReadOnly) {
		return fmt.Errorf("delete: %w", err)
	}
	return refuse(s, path, func(opts store.PutOptions, key string) error {
		_, err := s.Put(background, key, nil, opts)
		if !errors.Is(err, store.ErrReadOnly) || !errors.Is(err, store.ErrPermission) || !errors.Is(err, unix.EROFS) {
			return fmt.Errorf("put %q %+v: %w", key, opts, err)
		}
		folder := path
		if key == "index/lock.exclusive" {
			folder = filepath.Join(path, "index")
		}
		return says(err, key, fmt.Sprintf("%q is on a file system that is mounted read-only", folder))
	})
}

// TestNoNewFiles: a file system in which no file can be made is named as the reason. No directory is
// missing there.
func TestNoNewFiles(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("the mode of /proc refuses other users than root: run this test as root")
	}
	s := at(t, "/proc")
	_, err := s.Put(t.Context(), "index/k", nil, store.PutOptions{})
	if err == nil {
		t.Fatal("put into /proc")
	}
	if err := says(err, "index/k", `can't write into "/proc": its file system takes no new files: no such file or directory`); err != nil || store.Permanent(err) {
		t.Error(err)
	}
}

// unmounted takes the disk away from under the store. The mount point that appears is not the
// repository.
func unmounted(path string) error {
	s, err := mount(path)
	if err != nil {
		return err
	}
	if err := unix.Unmount(path, 0); err != nil {
		return fmt.Errorf("an idle store keeps the disk busy: %w", err)
	}
	_, put := s.Put(background, "k", nil, store.PutOptions{})
	_, _, get := s.Get(background, "k", 100)
	_, list := s.List(background, "", "")
	for i, err := range []error{put, get, list, s.Delete(background, "k")} {
		if !errors.Is(err, store.ErrNotFound) || !strings.Contains(err.Error(), "no longer on the file system") {
			return fmt.Errorf("method %d: %w", i, err)
		}
	}
	if entries, err := os.ReadDir(path); len(entries) != 0 || err != nil {
		return fmt.Errorf("on the mount point: %v, %w", entries, err)
	}
	return nil
}

func fileSizeLimit(path string) error {
	s, err := withLock(path)
	if err != nil {
		return err
	}
	signal.Ignore(syscall.SIGXFSZ)
	if err := unix.Setrlimit(unix.RLIMIT_FSIZE, &unix.Rlimit{Cur: 1000, Max: 1000}); err != nil {
		return err
	}
	return refuse(s, path, func(opts store.PutOptions, key string) error {
		_, err := s.Put(background, key, make([]byte, 5000), opts)
		if !errors.Is(err, unix.EFBIG) || store.Permanent(err) {
			return fmt.Errorf("put %q %+v: %w", key, opts, err)
		}
		return says(err, key, fmt.Sprintf("can't write into %q: file too large", filepath.Join(path, filepath.Dir(key))))
	})
}

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
	must(t, <-done)
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
	must(t, os.Mkdir(path, 0o700))
	for dir := filepath.Dir(path); dir != filepath.Dir(dir); dir = filepath.Dir(dir) {
		if info, err := os.Stat(dir); err == nil && info.Mode().Perm()&0o005 != 0o005 {
			must(t, os.Chmod(dir, info.Mode().Perm()|0o005))
		}
	}
	must(t, os.Chown(path, uid, gid))
	must(t, os.Chmod(path, mode))
	return path
}

// TestRootLeavesItToTheOwner: an object that root puts into another user's repository belongs
// to that user, who can read, replace and delete it.
func TestRootLeavesItToTheOwner(t *testing.T) {
	for _, mode := range []fs.FileMode{0o700, 0o750, 0o755} {
		path := repository(t, alice, crew, mode)
		leavesLocks(t, path, 0o077)
		user(t, alice, alice, func() { takesOver(t, path, "alice") })
	}
}

// TestGroupShares: each member of a repository's group can use it, whatever the umask of the
// others, and although one of them left locks behind.
func TestGroupShares(t *testing.T) {
	for _, mode := range []fs.FileMode{0o775 | fs.ModeSetgid, 0o770 | fs.ModeSetgid, 0o770} {
		for _, umask := range []int{0o022, 0o077} {
			path := repository(t, 0, crew, mode)
			user(t, alice, crew, func() { leavesLocks(t, path, umask) })
			user(t, bob, crew, func() { takesOver(t, path, "bob") })
		}
	}
}

var ownedKeys = []string{"index/lock.exclusive", "index/lock.shared/x", "index/lock.intent/x"}

// leavesLocks puts locks, replaces one, and leaves them.
func leavesLocks(t *testing.T, path string, umask int) {
	defer syscall.Umask(syscall.Umask(umask))
	s, err := dir.Open(t.Context(), path, dir.Options{})
	if err != nil {
		t.Error(err)
		return
	}
	for i, key := range append(ownedKeys, ownedKeys[1]) {
		if _, err := s.Put(t.Context(), key, []byte("another's"), store.PutOptions{IfAbsent: i < len(ownedKeys)}); err != nil {
			t.Errorf("umask %o: %v", umask, err)
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
	for _, key := range ownedKeys {
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

const nobody = 65534

// asNobody runs a part of a test without the privileges of root, which file modes don't bind:
// it drops those of this thread. Another user has none to drop.
func asNobody(t *testing.T, path string, do func()) {
	t.Helper()
	if os.Geteuid() != 0 {
		do()
		return
	}
	// The user nobody gets the test's files, and can reach them.
	if err := filepath.WalkDir(path, func(name string, _ os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		return os.Lchown(name, nobody, nobody)
	}); err != nil {
		t.Fatal(err)
	}
	must(t, os.Chmod(filepath.Dir(path), 0o755))
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	must(t, unix.Setfsgid(nobody))
	defer func() { _ = unix.Setfsgid(0) }()
	must(t, unix.Setfsuid(nobody))
	defer func() { _ = unix.Setfsuid(0) }()
	do()
}
