//go:build unix && !linux

package child

import "golang.org/x/sys/unix"

// leader follows the first process of a group. Its zombie is reaped at once;
// these systems give no new process the number of a group that has members.
type leader struct {
	pid    int
	ended  bool
	status Status
}

// poll returns the signal that has stopped or continued the leader, if one has
// since the last poll.
func (l *leader) poll() (change unix.Signal) {
	for !l.ended {
		var ws unix.WaitStatus
		pid, err := unix.Wait4(l.pid, &ws, unix.WNOHANG|unix.WUNTRACED|unix.WCONTINUED, nil)
		switch {
		case err == unix.EINTR:
		case err != nil:
			l.ended = true
		case pid == 0:
			return change
		case ws.Stopped():
			change = ws.StopSignal()
		case ws.Continued():
			change = unix.SIGCONT
		default:
			l.ended, l.status = true, statusOf(ws)
		}
	}
	return change
}

func (l *leader) reap() Status {
	disown(l.pid)
	return l.status
}

// sweep returns 0 if the group is empty and -1 if it isn't.
func sweep(l *leader) int {
	if l.ended && unix.Kill(-l.pid, 0) == unix.ESRCH {
		return 0
	}
	return -1
}
