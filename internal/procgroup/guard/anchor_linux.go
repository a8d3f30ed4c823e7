package guard

import (
	"os"
	"syscall"
)

// anchor is a process in a stopped group that does nothing. Its parent, the guard, is in the session of the group, and
// not in the group. So the group isn't orphaned when repolock is killed. Otherwise the kernel would send SIGHUP and
// SIGCONT to all its processes, and processes that ignore SIGHUP would run until the guard has killed the group:
// setpgid(2). The anchor dies with the guard.
type anchor struct {
	pid  int
	gate *os.File // the anchor waits until it is closed
}

// hold puts the anchor into a group if there is none. It returns the anchor's pid, or 0 if it can't be started.
func (a *anchor) hold(pgid int) int {
	if a.pid != 0 {
		if pid, err := syscall.Wait4(a.pid, nil, syscall.WNOHANG, nil); err != nil || pid != a.pid {
			return a.pid
		}
		a.pid = 0
		a.gate.Close()
	}
	r, w, err := os.Pipe()
	if err != nil {
		return 0
	}
	defer r.Close()
	a.pid, err = syscall.ForkExec("/proc/self/exe", []string{Name, anchorArgument}, &syscall.ProcAttr{
		Dir:   "/",
		Env:   []string{Environment},
		Files: []uintptr{r.Fd(), 1, 2},
		Sys:   &syscall.SysProcAttr{Setpgid: true, Pgid: pgid, Pdeathsig: syscall.SIGKILL},
	})
	if err != nil {
		a.pid = 0
		w.Close()
		return 0
	}
	a.gate = w
	_ = syscall.Kill(a.pid, syscall.SIGSTOP)
	return a.pid
}

// release ends the anchor, so that a group that runs again has only its own processes.
func (a *anchor) release() {
	if a.pid != 0 {
		_ = syscall.Kill(a.pid, syscall.SIGKILL)
		_, _ = syscall.Wait4(a.pid, nil, 0, nil)
		a.gate.Close()
		*a = anchor{}
	}
}
