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

// Members finds the processes of a group that run although they were sent SIGSTOP.
type Members struct{ pids []int }

// Continued reports whether another process has continued, or traces, a process of the group. It ignores the process
// except. With anew it also looks for new members, which takes some microseconds for each process of the machine. A
// stopped group starts none.
func (m *Members) Continued(pgid, except int, anew bool) bool {
	if self, err := os.Readlink("/proc/self"); err != nil || self != strconv.Itoa(os.Getpid()) {
		return false
	}
	if anew || m.pids == nil {
		m.pids = m.pids[:0]
		entries, _ := os.ReadDir("/proc")
		for _, e := range entries {
			if pid, err := strconv.Atoi(e.Name()); err == nil {
				m.pids = append(m.pids, pid)
			}
		}
	}
	own := m.pids[:0]
	runs := false
	for _, pid := range m.pids {
		if group, err := syscall.Getpgid(pid); err == nil && group == pgid {
			own = append(own, pid)
			runs = runs || pid != except && syscall.Kill(pid, 0) == nil && goesOn("/proc/"+strconv.Itoa(pid))
		}
	}
	m.pids = own
	return runs
}

// goesOn reports whether a process was sent SIGSTOP, and runs. The signal stays pending until a thread takes it. That
// thread is stopped from then on, and the others are stopped as soon as they run. SIGCONT ends both. So the process
// goes on if the signal isn't pending, and no thread is stopped later. A process that is ending takes no signal.
func goesOn(process string) bool {
	status, err := os.ReadFile(process + "/status")
	if err != nil || pending(status)&(1<<(syscall.SIGSTOP-1)|1<<(syscall.SIGKILL-1)) != 0 {
		return false
	}
	threads, _ := os.ReadDir(process + "/task")
	runs := false
	for _, t := range threads {
		text, err := os.ReadFile(process + "/task/" + t.Name() + "/stat")
		if err != nil {
			continue
		}
		const state, flags, exiting = 0, 6, 4 // fields 3 and 9, and PF_EXITING
		switch f := fields(text); f[state] {
		case "T", "t":
			return false
		case "Z", "X":
		default:
			n, _ := strconv.Atoi(f[flags])
			runs = runs || n&exiting == 0
		}
	}
	return runs
}

// pending returns the signals that are pending for a process or for its first thread: proc_pid_status(5).
func pending(status []byte) (set uint64) {
	for _, line := range lines(string(status)) {
		for _, name := range []string{"SigPnd:\t", "ShdPnd:\t"} {
			if len(line) > len(name) && line[:len(name)] == name {
				n, _ := strconv.ParseUint(line[len(name):], 16, 64)
				set |= n
			}
		}
	}
	return set
}

// zombie reports whether a process has ended: proc_pid_stat(5). If only its first thread has ended, it still runs.
// The guard can't use package procstat, which is initialised too late for it.
func zombie(stat []byte) bool {
	const state, threads = 0, 17 // fields 3 and 20
	f := fields(stat)
	return (f[state] == "Z" || f[state] == "X") && (f[threads] == "0" || f[threads] == "1")
}

// fields returns the fields from the third to the twentieth: proc_pid_stat(5).
func fields(stat []byte) (f [18]string) {
	// The name of the program, in parentheses before these fields, can itself contain spaces and
	// parentheses.
	begin := len(stat)
	for begin > 0 && stat[begin-1] != ')' {
		begin--
	}
	n := -1 // a space is before each field
	for _, c := range stat[begin:] {
		if c == ' ' {
			n++
		} else if n >= 0 && n < len(f) {
			f[n] += string(rune(c))
		}
	}
	return f
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
