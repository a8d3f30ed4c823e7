package guard

import (
	"os"
	"strconv"
	"syscall"
	"unsafe"
)

// ended reports whether no process of a group runs. For kill(2) a zombie exists, and its parent might not reap it
// for long. So ended looks for processes that aren't zombies.
func ended(pgid int) bool {
	if syscall.Kill(-pgid, 0) == syscall.ESRCH {
		return true
	}
	// /proc can be mounted from another pid namespace, whose pids name other processes.
	if self, err := os.Readlink("/proc/self"); err != nil || self != strconv.Itoa(os.Getpid()) {
		return false
	}
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return false
	}
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		if group, err := syscall.Getpgid(pid); err != nil || group != pgid {
			continue
		}
		text, err := os.ReadFile("/proc/" + e.Name() + "/stat")
		if err != nil && syscall.Kill(pid, 0) != syscall.ESRCH || err == nil && !zombie(text) {
			return false
		}
	}
	return true
}

// zombie reports whether a process has ended: proc_pid_stat(5). If only its first thread has ended, it still runs.
// The guard can't use package procstat, which is initialised too late for it.
func zombie(stat []byte) bool {
	const state, threads = 0, 17 // fields 3 and 20
	// The name of the program, in parentheses before these fields, can itself contain spaces and
	// parentheses.
	begin := len(stat)
	for begin > 0 && stat[begin-1] != ')' {
		begin--
	}
	var f [threads + 1]string
	n := -1 // a space is before each field
	for _, c := range stat[begin:] {
		if c == ' ' {
			n++
		} else if n >= 0 && n < len(f) {
			f[n] += string(rune(c))
		}
	}
	return (f[state] == "Z" || f[state] == "X") && (f[threads] == "0" || f[threads] == "1")
}

// nameProcess names our first thread, whose name ps(1) shows: proc_pid_comm(5). prctl(2) names the current thread,
// which might be another one.
func nameProcess(name string) {
	if os.WriteFile("/proc/self/comm", []byte(name), 0) == nil {
		return
	}
	b := append([]byte(name), 0)
	_, _, _ = syscall.Syscall(syscall.SYS_PRCTL, syscall.PR_SET_NAME, uintptr(unsafe.Pointer(&b[0])), 0)
}

// inherited reports whether a file lacks close-on-exec. Files that we have opened have it.
func inherited(fd int) bool {
	flags, _, err := syscall.Syscall(syscall.SYS_FCNTL, uintptr(fd), syscall.F_GETFD, 0)
	return err == 0 && flags&syscall.FD_CLOEXEC == 0
}
