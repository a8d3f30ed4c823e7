//go:build unix

package torture

import (
	"os"
	"os/exec"
	"syscall"
)

// apart puts a process into a group of its own: the terminal's Ctrl-C is for us
// alone, and if we are killed, the kernel continues whom we have stopped.
func apart(c *exec.Cmd) { c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} }

// signals of the faults; a process that was stopped is continued by sigcont.
var (
	signals           = map[fault]os.Signal{kill: os.Kill, stop: syscall.SIGSTOP, term: syscall.SIGTERM}
	sigcont os.Signal = syscall.SIGCONT
)
