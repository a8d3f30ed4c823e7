//go:build unix

package torture

import (
	"os"
	"os/exec"
	"syscall"
)

// apart puts a process into a group of its own: the terminal's Ctrl-C reaches only us, and if
// we are killed, the kernel continues the processes that we have stopped.
func apart(c *exec.Cmd) { c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} }

// signals are the signals of the faults; sigcont continues a stopped process.
var (
	signals           = map[harm]os.Signal{kill: os.Kill, stop: syscall.SIGSTOP, term: syscall.SIGTERM}
	sigcont os.Signal = syscall.SIGCONT
)
