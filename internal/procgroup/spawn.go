//go:build unix

package procgroup

import (
	"os"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/repolock/repolock/internal/child"
)

// owned are the children that await reaps, and sweep leaves alone.
var owned = &child.Owned

// pipes are our ends of two pipes to a child, or the child's ends.
type pipes struct{ in, out *os.File }

func (p pipes) close() {
	p.in.Close()
	p.out.Close()
}

func openPipes() (ours, theirs pipes, err error) {
	if theirs.in, ours.out, err = os.Pipe(); err != nil {
		return ours, theirs, err
	}
	if ours.in, theirs.out, err = os.Pipe(); err != nil {
		theirs.in.Close()
		ours.out.Close()
	}
	return ours, theirs, err
}

// spawn starts a process. Besides the files of attr, it inherits the given file descriptors under their own numbers.
func spawn(path string, args []string, attr *syscall.ProcAttr, inherited ...uintptr) (int, error) {
	return child.Start(func() (int, error) {
		for _, fd := range inherited {
			if _, err := unix.FcntlInt(fd, unix.F_SETFD, 0); err != nil {
				return 0, err
			}
			defer unix.CloseOnExec(int(fd))
		}
		return syscall.ForkExec(path, args, attr)
	})
}

// await waits for the end of a process and reaps it.
func await(pid int) (ws unix.WaitStatus) {
	for {
		// Without WUNTRACED only an end is reported: wait4(2).
		_, err := unix.Wait4(pid, &ws, 0, nil)
		if err != unix.EINTR {
			break
		}
	}
	child.Disown(pid)
	return ws
}

func statusOf(ws unix.WaitStatus) Status {
	if ws.Signaled() {
		return Status{Signal: ws.Signal()}
	}
	return Status{Code: ws.ExitStatus()}
}
