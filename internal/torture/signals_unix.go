//go:build unix

package torture

import (
	"os"
	"os/exec"
	"syscall"
)

// ownGroup makes a command start in its own process group. So a Ctrl-C at the terminal reaches only this process. If this
// process is killed, the kernel continues the processes that it has stopped.
func ownGroup(c *exec.Cmd) { c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} }

var (
	signals           = map[string]os.Signal{kill: os.Kill, stop: syscall.SIGSTOP, term: syscall.SIGTERM}
	sigcont os.Signal = syscall.SIGCONT
)
