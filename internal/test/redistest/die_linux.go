package redistest

import (
	"os/exec"
	"syscall"
)

// dieWithUs makes the server end if the test is killed.
func dieWithUs(c *exec.Cmd) { c.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }
