//go:build unix

package procgroup

import (
	"fmt"
	"os"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/repolock/repolock/internal/procgroup/guard"
)

// backstop is a shell that kills the group when our process and the guard were both killed: the pipe to the
// shell is closed then. It isn't our own program, so that a tool that kills all processes of our program
// (busybox's pidof) doesn't kill it.
type backstop struct {
	pid  int      // 0 if the shell isn't started
	in   *os.File // the end of the pipe that the shell reads
	kept *os.File // the other end, which we and the guard keep open
}

// backstopScript kills the group at the end of the pipe. A line on the pipe means that the guard has
// killed the group itself. The script ignores each signal that can be ignored.
const backstopScript = `trap "" HUP INT QUIT TERM USR1 USR2; read line || kill -9 -%d`

// open opens the pipe. It must be called before the first guard is started.
func (b *backstop) open() (err error) {
	b.in, b.kept, err = os.Pipe()
	return err
}

// start starts the shell. If that fails, because the system has no shell or too many processes, there is no
// backstop, only the guard.
func (b *backstop) start(pgid int) {
	defer b.in.Close()
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return
	}
	defer null.Close()
	b.pid, _ = spawn("/bin/sh", []string{"sh", "-c", fmt.Sprintf(backstopScript, pgid), guard.Name}, &syscall.ProcAttr{
		Dir:   "/",
		Env:   []string{},
		Files: []uintptr{b.in.Fd(), null.Fd(), null.Fd()},
		Sys:   &syscall.SysProcAttr{Setsid: true},
	})
}

// end kills and reaps the shell. After end, it sends no signal.
func (b *backstop) end() {
	if b.pid != 0 {
		_ = unix.Kill(b.pid, unix.SIGKILL)
		await(b.pid)
	}
	b.in.Close()
	b.kept.Close()
}
