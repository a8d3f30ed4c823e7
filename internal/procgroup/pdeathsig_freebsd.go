package procgroup

import (
	"syscall"

	"golang.org/x/sys/unix"
)

func init() { dieWithThread = func(attr *syscall.SysProcAttr) { attr.Pdeathsig = unix.SIGKILL } }
