package dir_test

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"syscall"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/repolock/repolock/internal/test/assert"
	"github.com/repolock/repolock/store"
)

// inMounts runs a test in a process with mounts of its own. Another user than root needs a user
// namespace for them, which some systems don't allow.
func inMounts(t *testing.T, test func(path string)) {
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
	inChild(t, attr, test)
}

// childEnv is set to the directory in a process of inChild.
const childEnv = "REPOLOCK_TEST_CHILD"

// inChild runs a test in another process, in a new directory.
func inChild(t *testing.T, attr *syscall.SysProcAttr, test func(path string)) {
	t.Helper()
	if path := os.Getenv(childEnv); path != "" {
		test(path)
		return
	}
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+t.Name()+"$")
	cmd.Env, cmd.SysProcAttr = append(os.Environ(), childEnv+"="+t.TempDir()), attr
	out, err := cmd.CombinedOutput()
	assert.That(t, err == nil, "%v: %s", err, out)
}

func mount(t *testing.T, path string) store.Store {
	t.Helper()
	assert.OK(t, unix.Mount("tmpfs", path, "tmpfs", 0, "size=64k"))
	s := at(t, path)
	put(t, s, "index/lock.exclusive", "body")
	return s
}

// refuses checks that every kind of Put fails with this text, which names the folder, and these errors.
// The stored object must stay, and nothing be left behind.
func refuses(t *testing.T, s store.Store, path string, size int, folder, says string, want ...error) {
	t.Helper()
	_, obj, err := s.Get(t.Context(), "index/lock.exclusive", 100)
	assert.OK(t, err)
	for _, c := range []struct {
		key, folder string
		opts        store.PutOptions
	}{
		{"index/lock.exclusive", "index", store.PutOptions{}},
		{"index/lock.exclusive", "index", store.PutOptions{Durable: true}},
		{"index/lock.exclusive", "index", store.PutOptions{IfMatch: obj.ETag}},
		{"new/new", folder, store.PutOptions{}},
		{"new/new", folder, store.PutOptions{IfAbsent: true}},
	} {
		_, err := s.Put(t.Context(), c.key, make([]byte, size), c.opts)
		for _, want := range want {
			assert.Is(t, err, want, "%+v", c)
		}
		assert.Equal(t, store.Permanent(err), errors.Is(err, store.ErrPermission), "permanent: %v", err)
		assert.Equal(t, fmt.Sprint(err), fmt.Sprintf("put %q: "+says, c.key, filepath.Join(path, c.folder)))
	}
	assert.Equal(t, read(t, s, "index/lock.exclusive"), "body")
	has(t, path, "index/ index/lock.exclusive")
}

func TestDiskFull(t *testing.T) {
	inMounts(t, func(path string) {
		const says = "no space left in the repository: can't write into %q: no space left on device"
		refuses(t, mount(t, path), path, 100_000, "new", says, store.ErrFull, unix.ENOSPC)
	})
}

// TestFileSizeLimit: a write that fails in the middle leaves nothing behind.
func TestFileSizeLimit(t *testing.T) {
	inChild(t, nil, func(path string) {
		s := at(t, path)
		put(t, s, "index/lock.exclusive", "body")
		signal.Ignore(syscall.SIGXFSZ)
		var old unix.Rlimit
		assert.OK(t, unix.Getrlimit(unix.RLIMIT_FSIZE, &old))
		assert.OK(t, unix.Setrlimit(unix.RLIMIT_FSIZE, &unix.Rlimit{Cur: 1000, Max: old.Max}))
		defer func() { assert.OK(t, unix.Setrlimit(unix.RLIMIT_FSIZE, &old)) }() // -cover writes a file at the end
		refuses(t, s, path, 5000, "new", "can't write into %q: file too large", unix.EFBIG)
	})
}

func TestReadOnlyMount(t *testing.T) {
	inMounts(t, func(path string) {
		mount(t, path)
		assert.OK(t, unix.Mount("", path, "", unix.MS_REMOUNT|unix.MS_RDONLY, ""))
		s := at(t, path)
		assert.Equal(t, listed(t, s, "index/lock."), "index/lock.exclusive")
		assert.Is(t, s.Delete(t.Context(), "index/lock.exclusive"), store.ErrReadOnly, "delete")
		const says = "%q is on a file system that is mounted read-only"
		refuses(t, s, path, 0, "", says, store.ErrReadOnly, store.ErrPermission, unix.EROFS)
	})
}

// TestUnmounted: after the disk was unmounted, its mount point isn't the repository.
func TestUnmounted(t *testing.T) {
	inMounts(t, func(path string) {
		s := mount(t, path)
		assert.OK(t, unix.Unmount(path, 0)) // this would fail if the store kept a file open
		for name, err := range each(t, s, "k") {
			assert.Says(t, err, store.ErrNotFound, "no longer on the file system", name)
		}
		has(t, path, "")
	})
}

// TestNoNewFiles: if a file system takes no new files, the error shows that.
func TestNoNewFiles(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("the mode of /proc refuses other users than root: run this test as root")
	}
	const says = `put "index/k": can't write into "/proc": its file system takes no new files: no such file or directory`
	err := assert.Err(at(t, "/proc").Put(t.Context(), "index/k", nil, store.PutOptions{}))
	assert.Equal(t, fmt.Sprint(err), says)
	assert.That(t, !store.Permanent(err), "%v is permanent", err)
}

// user runs a function with the rights of another user and group, in a thread that ends with it.
func user(t *testing.T, id int, group uint32, do func()) {
	t.Helper()
	done := make(chan error, 1)
	go func() {
		defer close(done)
		runtime.LockOSThread() // without an unlock the thread ends with the goroutine
		if _, _, errno := unix.RawSyscall(unix.SYS_SETGROUPS, 1, uintptr(unsafe.Pointer(&group)), 0); errno != 0 {
			done <- errno
		} else if err := errors.Join(unix.Setfsgid(id), unix.Setfsuid(id)); err != nil {
			done <- err
		} else {
			do()
		}
	}()
	assert.OK(t, <-done)
}

const (
	alice = 4001
	bob   = 4002
	crew  = 5000
)

// repository returns a new repository with an owner, a group and a mode. All users can reach it.
func repository(t *testing.T, uid, gid int, mode fs.FileMode) string {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("only root can act for other users")
	}
	path := filepath.Join(t.TempDir(), "repo")
	assert.OK(t, os.Mkdir(path, 0o700))
	for dir := filepath.Dir(path); dir != filepath.Dir(dir); dir = filepath.Dir(dir) {
		if info, err := os.Stat(dir); err == nil && info.Mode().Perm()&0o005 != 0o005 {
			assert.OK(t, os.Chmod(dir, info.Mode().Perm()|0o005))
		}
	}
	assert.OK(t, os.Chown(path, uid, gid))
	assert.OK(t, os.Chmod(path, mode))
	return path
}

// TestRootLeavesItToTheOwner: an object that root puts into another user's repository belongs
// to that user, who can read, replace and delete it.
func TestRootLeavesItToTheOwner(t *testing.T) {
	for _, mode := range []fs.FileMode{0o700, 0o750, 0o755} {
		path := repository(t, alice, crew, mode)
		leavesLocks(t, path, 0o077)
		user(t, alice, alice, func() { takesOver(t, path) })
	}
}

// TestGroupShares: each member of a repository's group can read, replace and delete the objects of the
// others, whatever their umask.
func TestGroupShares(t *testing.T) {
	for _, mode := range []fs.FileMode{0o775 | fs.ModeSetgid, 0o770 | fs.ModeSetgid, 0o770} {
		for _, umask := range []int{0o022, 0o077} {
			path := repository(t, 0, crew, mode)
			user(t, alice, crew, func() { leavesLocks(t, path, umask) })
			user(t, bob, crew, func() { takesOver(t, path) })
		}
	}
}

var ownedKeys = []string{"index/lock.exclusive", "index/lock.shared/x", "index/lock.intent/x"}

func leavesLocks(t *testing.T, path string, umask int) {
	defer syscall.Umask(syscall.Umask(umask))
	s := at(t, path)
	for i, key := range append(ownedKeys, ownedKeys[1]) {
		_, err := s.Put(t.Context(), key, []byte("another's"), store.PutOptions{IfAbsent: i < len(ownedKeys)})
		assert.Is(t, err, nil, "umask %o", umask)
	}
}

func takesOver(t *testing.T, path string) {
	s := at(t, path)
	for _, key := range ownedKeys {
		assert.Equal(t, read(t, s, key), "another's")
		f, err := os.OpenFile(filepath.Join(path, key), os.O_RDWR, 0)
		assert.OK(t, err)
		f.Close()
		put(t, s, key+"2", "")
		remove(t, s, key)
		remove(t, s, key+"2")
	}
}

const nobody = 65534

// asNobody runs a part of a test as the user nobody, if the test runs as root, whom modes don't bind.
func asNobody(t *testing.T, path string, do func()) {
	t.Helper()
	if os.Geteuid() != 0 {
		do()
		return
	}
	// The user nobody must own the test's files, and must be able to reach them.
	assert.OK(t, filepath.WalkDir(path, func(name string, _ os.DirEntry, err error) error {
		return errors.Join(err, os.Lchown(name, nobody, nobody))
	}))
	assert.OK(t, os.Chmod(filepath.Dir(path), 0o755))
	user(t, nobody, nobody, do)
}
