package miniotest

import (
	"os/exec"
	"syscall"
)

// dieWithUs has the server end also where the test is killed.
func dieWithUs(c *exec.Cmd) { c.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }
