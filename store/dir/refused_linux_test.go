package dir

import (
	"errors"
	"io/fs"
	"runtime"
	"syscall"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/repolock/repolock/internal/test/assert"
	"github.com/repolock/repolock/store"
	"github.com/repolock/repolock/store/internal/files"
)

// refused runs f on a thread for which the kernel refuses a system call, as a broken disk does. The thread ends with f.
func refused(t *testing.T, call uint32, errno syscall.Errno, f func()) {
	t.Helper()
	filter := []unix.SockFilter{
		{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS}, // the call's number
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, Jf: 1, K: call},
		{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ERRNO | uint32(errno)},
		{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ALLOW},
	}
	program := &unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	ended := make(chan error)
	go func() {
		runtime.LockOSThread() // and never unlock it
		err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
		if err == nil {
			err = unix.Prctl(unix.PR_SET_SECCOMP, unix.SECCOMP_MODE_FILTER, uintptr(unsafe.Pointer(program)), 0, 0)
		}
		if err == nil {
			f()
		}
		ended <- err
	}()
	assert.OK(t, <-ended)
}

// TestUnreadableDisk: a directory that the disk fails to read isn't empty. One that was removed meanwhile is.
func TestUnreadableDisk(t *testing.T) {
	s := opened(t)
	create(t, s, "index/lock.shared/a")
	for name, read := range map[string]func() error{
		"List":     func() error { return assert.Err(s.List(t.Context(), "index/lock.", "")) },
		"HasOther": func() error { return assert.Err(s.HasOther(t.Context(), "index/lock.")) },
		"Watch":    func() error { return assert.Err(s.Watch(t.Context(), "index/lock.")) },
	} {
		var eio, enoent error
		refused(t, unix.SYS_GETDENTS64, syscall.EIO, func() { eio = read() })
		assert.Says(t, eio, syscall.EIO, "can't list", name)
		refused(t, unix.SYS_GETDENTS64, syscall.ENOENT, func() { enoent = read() })
		assert.Is(t, enoent, nil, name)
	}

	// Some systems open no removed directory.
	root, err := s.open()
	assert.OK(t, err)
	defer root.Close()
	folder, err := openDir(root, "index/lock.shared")
	assert.OK(t, err)
	defer folder.Close()
	refused(t, unix.SYS_OPENAT, syscall.ENOENT, func() {
		names, err := scan(t.Context(), root, files.Below("", ""))
		assert.That(t, err == nil && len(names) == 0, "%q, %v", names, err)
		_, obj, err := s.inspect(t.Context(), folder, "a", 1) // it is gone between the look and the open
		assert.That(t, errors.Is(err, fs.ErrNotExist) && obj == (store.Object{}), "%+v, %v", obj, err)
		found, err := hasOther(t.Context(), root, "", "index/lock.")
		assert.That(t, !found && err == nil, "%t, %v", found, err)
	})
}

// TestWithoutLinks: on a file system without hard links, whatever its error is, a put if absent stores a new object and
// replaces none.
func TestWithoutLinks(t *testing.T) {
	for _, errno := range []syscall.Errno{syscall.EPERM, syscall.EOPNOTSUPP, syscall.EACCES, syscall.EIO, syscall.EMLINK, syscall.EXDEV, syscall.EINVAL, syscall.ERANGE} {
		s := opened(t)
		var first, second error
		refused(t, unix.SYS_LINKAT, errno, func() {
			first = assert.Err(s.Put(t.Context(), "index/a", []byte("first"), store.PutOptions{IfAbsent: true}))
			second = assert.Err(s.Put(t.Context(), "index/a", []byte("second"), store.PutOptions{IfAbsent: true}))
		})
		assert.Is(t, first, nil, errno.Error())
		assert.Is(t, second, store.ErrPrecondition, errno.Error())
		body, _, err := s.Get(t.Context(), "index/a", 10)
		assert.That(t, err == nil && string(body) == "first", "%v: %q, %v", errno, body, err)
	}
}
