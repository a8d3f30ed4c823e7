//go:build unix

package torture

import (
	"os"
	"os/exec"
	"syscall"
)

// apart puts a process into a group of its own. So a Ctrl-C at the terminal reaches only us, and the
// kernel continues the processes that we have stopped if we are killed.
func apart(c *exec.Cmd) { c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} }

var (
	signals           = map[string]os.Signal{kill: os.Kill, stop: syscall.SIGSTOP, term: syscall.SIGTERM}
	sigcont os.Signal = syscall.SIGCONT
)
