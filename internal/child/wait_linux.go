package child

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// leader follows the first process of a group. Its end is only looked at, not
// waited for, until reap: as long as its zombie is there the kernel gives its
// number neither to another process nor to another group.
type leader struct {
	pid    int
	ended  bool
	reaped bool
	status Status
}

// poll returns the signal that has stopped or continued the leader, if one has
// since the last poll.
func (l *leader) poll() (change unix.Signal) {
	if l.ended {
		return 0
	}
	if info, ok := look(unix.P_PID, l.pid, unix.WSTOPPED|unix.WCONTINUED); ok {
		change = unix.Signal(info.status)
	}
	_, l.ended = look(unix.P_PID, l.pid, unix.WEXITED|unix.WNOWAIT)
	return change
}

func (l *leader) reap() Status {
	if !l.reaped {
		l.status = statusOf(await(l.pid))
		l.reaped = true
	}
	return l.status
}

// childInfo is siginfo_t as waitid(2) fills it in. The kernel's union begins at
// a multiple of a pointer's size.
type childInfo struct {
	_      [3]int32
	_      [unsafe.Sizeof(uintptr(0))/4 - 1]int32
	pid    int32
	_      uint32
	status int32
	_      [128]byte
}

// look asks about children without waiting.
func look(kind, id, options int) (info childInfo, ok bool) {
	for {
		err := unix.Waitid(kind, id, (*unix.Siginfo)(unsafe.Pointer(&info)), options|unix.WNOHANG, nil)
		if err != unix.EINTR {
			return info, err == nil && info.pid != 0
		}
	}
}
