//go:build unix && !linux

package procgroup

import (
	"os"
	"os/signal"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/repolock/repolock/internal/child"
	"github.com/repolock/repolock/internal/procgroup/guard"
)

var guardProgram = func() string {
	path, err := os.Executable()
	if err != nil {
		return os.Args[0]
	}
	return path
}

// memoryFile fails: there is no portable call.
func memoryFile() (*os.File, error) { return nil, os.ErrInvalid }

// runningMembers returns nil: these systems don't list the processes of a group.
func runningMembers(int, bool, func(int) bool) []int { return nil }

// adoptOrphans does nothing. Process 1 adopts orphans, and kill(2) reports whether the group is empty.
func adoptOrphans() {}
func leaveOrphans() {}

// dieWithThread does nothing: the guard kills the command. FreeBSD replaces it.
var dieWithThread = func(*syscall.SysProcAttr) {}

func emptySignalMask() (restore func()) { return func() {} }

// withoutTTOU ignores SIGTTOU for good, because Go can't restore a signal's default. The command doesn't
// inherit that, because it is forked before the first call.
func withoutTTOU() (restore func()) {
	signal.Ignore(unix.SIGTTOU)
	return func() {}
}

// notifyStop delivers nothing. If we caught SIGTSTP, we could not stop ourselves, because Go can't restore a
// signal's default. So a SIGTSTP to us stops only us, and the guard stops the command later.
func notifyStop() chan os.Signal { return make(chan os.Signal) }

func defaultStop() (restore func()) { return func() {} }

// leader is the first process of a group. poll reaps it at its end: while the group has members, these
// systems give its number to no new process.
type leader struct {
	pid    int
	ended  bool
	status Status
	page   *guard.Page
}

// poll returns the signal that stopped or continued the leader since the last poll, or 0.
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
	child.Disown(l.pid)
	return l.status
}

// members returns 0: these systems don't list the processes of a group.
func members(*leader) int { return 0 }

// sweep returns 0 if the group is empty and -1 if it isn't.
func sweep(l *leader) int {
	if l.ended && unix.Kill(-l.pid, 0) == unix.ESRCH {
		return 0
	}
	return -1
}
