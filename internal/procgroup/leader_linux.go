package procgroup

import (
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/repolock/repolock/internal/procgroup/guard"
)

// leader is the first process of a group. After its end it stays a zombie until reap. Until then the kernel gives
// its number to no other process and to no other group.
type leader struct {
	pid    int
	ended  bool
	reaped bool
	status Status
	page   *guard.Page // or nil
}

// anchor returns the guard's process in the group, or 0. It doesn't keep the group alive.
func (l *leader) anchor() int {
	if l.page == nil {
		return 0
	}
	return l.page.Anchor()
}

// poll returns the signal that stopped or continued the leader since the last poll, or 0.
func (l *leader) poll() (change unix.Signal) {
	if l.ended {
		return 0
	}
	if info, ok := pollWait(unix.P_PID, l.pid, unix.WSTOPPED|unix.WCONTINUED); ok {
		change = unix.Signal(info.status)
	}
	_, l.ended = pollWait(unix.P_PID, l.pid, unix.WEXITED|unix.WNOWAIT)
	return change
}

func (l *leader) reap() Status {
	if !l.reaped {
		l.status = statusOf(await(l.pid))
		l.reaped = true
	}
	return l.status
}

// childInfo is siginfo_t with the fields that waitid(2) sets. Its union begins at a multiple of the pointer
// size.
type childInfo struct {
	_      [3]int32
	_      [unsafe.Sizeof(uintptr(0))/4 - 1]int32
	pid    int32
	_      uint32
	status int32
	_      [128]byte
}

// pollWait calls waitid(2) with WNOHANG. ok is false if no process has changed as options demand.
func pollWait(kind, id, options int) (info childInfo, ok bool) {
	for {
		err := unix.Waitid(kind, id, (*unix.Siginfo)(unsafe.Pointer(&info)), options|unix.WNOHANG, nil)
		if err != unix.EINTR {
			return info, err == nil && info.pid != 0
		}
	}
}
