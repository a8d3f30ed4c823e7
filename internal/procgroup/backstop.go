//go:build unix

package procgroup

import (
	"fmt"
	"os"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/repolock/repolock/internal/procgroup/guard"
)

// backstop is a shell that kills the group when the pipe to it ends, that is when our process and
// its guard were both killed. Its executable isn't ours, so a tool that kills our processes by their
// executable (busybox's pidof) leaves it alone.
type backstop struct {
	pid  int      // 0: it isn't started
	in   *os.File // the shell's standard input
	kept *os.File // the other end, which the guard keeps open too
}

// backstopScript kills the group, unless the guard has written a line because it has killed the
// group itself. A signal that can be ignored doesn't end the shell.
const backstopScript = `trap "" HUP INT QUIT TERM USR1 USR2; read line || kill -9 -%d`

// open opens the pipe, before the first guard is started.
func (b *backstop) open() (err error) {
	b.in, b.kept, err = os.Pipe()
	return err
}

// start starts the shell. A system that has none, or too many processes, is as safe as the guard
// makes it.
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

// end kills the shell and reaps it, so that it signals no process any more.
func (b *backstop) end() {
	if b.pid != 0 {
		_ = unix.Kill(b.pid, unix.SIGKILL)
		await(b.pid)
	}
	b.in.Close()
	b.kept.Close()
}
