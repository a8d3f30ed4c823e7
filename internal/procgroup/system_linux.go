package procgroup

import (
	"os"
	"os/signal"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/repolock/repolock/internal/procgroup/guard"
)

// guardProgram returns the path of our own program. It works even if the file was replaced or deleted:
// proc_pid_exe(5). It is a variable for tests.
var guardProgram = func() string { return "/proc/self/exe" }

// memoryFile returns a new file in memory: memfd_create(2). It is a variable for tests.
var memoryFile = func() (*os.File, error) {
	fd, err := unix.MemfdCreate(guard.Name, unix.MFD_CLOEXEC)
	return os.NewFile(uintptr(fd), guard.Name), err
}

// adoptOrphans makes us the parent of the command's orphans, so that we get SIGCHLD when they end:
// PR_SET_CHILD_SUBREAPER(2const).
func adoptOrphans() { _ = unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) }

func leaveOrphans() { _ = unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0) }

func dieWithThread(attr *syscall.SysProcAttr) { attr.Pdeathsig = unix.SIGKILL }

// emptySignalMask empties the signal mask of this thread until restore is called. A new process inherits the mask.
func emptySignalMask() (restore func()) { return setMask(unix.SIG_SETMASK, unix.Sigset_t{}) }

// withoutTTOU blocks SIGTTOU on this thread until restore is called.
func withoutTTOU() (restore func()) {
	runtime.LockOSThread()
	var set unix.Sigset_t
	const n, bits = int(unix.SIGTTOU) - 1, int(unsafe.Sizeof(set.Val[0])) * 8
	set.Val[n/bits] |= 1 << (n % bits)
	undo := setMask(unix.SIG_BLOCK, set)
	return func() {
		undo()
		runtime.UnlockOSThread()
	}
}

func setMask(how int, set unix.Sigset_t) (restore func()) {
	var old unix.Sigset_t
	if unix.PthreadSigmask(how, &set, &old) != nil {
		return func() {}
	}
	return func() { _ = unix.PthreadSigmask(unix.SIG_SETMASK, &old, nil) }
}

// notifyStop delivers SIGTSTP, unless it was ignored when we were started.
func notifyStop() chan os.Signal {
	if ignored(unix.SIGTSTP) {
		return make(chan os.Signal)
	}
	return notify(unix.SIGTSTP)
}

// ignored reports whether a signal was ignored when we were started. os/signal knows this only for SIGHUP and SIGINT.
// For other signals SigIgn in /proc/self/status shows it, but only before the first Notify.
func ignored(sig unix.Signal) bool {
	if signal.Ignored(sig) {
		return true
	}
	text, _ := os.ReadFile("/proc/self/status")
	_, rest, _ := strings.Cut(string(text), "SigIgn:")
	hex, _, _ := strings.Cut(rest, "\n")
	set, _ := strconv.ParseUint(strings.TrimSpace(hex), 16, 64)
	return set>>(sig-1)&1 != 0
}

// defaultStop lets SIGTSTP stop us until restore is called. signal.Reset can't do that, because it leaves
// the runtime's handler in place (runtime.sigdisable). So defaultStop calls rt_sigaction(2) itself, and
// restore writes the old value back, which the runtime doesn't notice. On every architecture all zero means
// SIG_DFL, no flags and an empty mask.
func defaultStop() (restore func()) {
	if ignored(unix.SIGTSTP) {
		return func() {}
	}
	var zero, old [16]uintptr // at least struct kernel_sigaction
	set := func(act, old *[16]uintptr) bool {
		// The last argument is the size of a signal set.
		_, _, err := unix.RawSyscall6(unix.SYS_RT_SIGACTION, uintptr(unix.SIGTSTP),
			uintptr(unsafe.Pointer(act)), uintptr(unsafe.Pointer(old)), sizeofSet(), 0, 0)
		return err == 0
	}
	if !set(&zero, &old) {
		return func() {}
	}
	return func() { set(&old, nil) }
}

// sizeofSet returns the size of the kernel's sigset_t in bytes, for 64 signals, or 128 on MIPS.
func sizeofSet() uintptr {
	if strings.HasPrefix(runtime.GOARCH, "mips") {
		return 16
	}
	return 8
}
