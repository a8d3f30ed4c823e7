package guard

import (
	"os"
	"syscall"
	"unsafe"
)

// nameProcess names the first thread, whose name shows as the process's:
// proc_pid_comm(5). We can be on another thread.
func nameProcess(name string) {
	if os.WriteFile("/proc/self/comm", []byte(name), 0) == nil {
		return
	}
	b := append([]byte(name), 0)
	_, _, _ = syscall.Syscall(syscall.SYS_PRCTL, syscall.PR_SET_NAME, uintptr(unsafe.Pointer(&b[0])), 0)
}

// inherited reports whether a file would be inherited once more, as those that we have
// opened would not.
func inherited(fd int) bool {
	flags, _, err := syscall.Syscall(syscall.SYS_FCNTL, uintptr(fd), syscall.F_GETFD, 0)
	return err == 0 && flags&syscall.FD_CLOEXEC == 0
}
