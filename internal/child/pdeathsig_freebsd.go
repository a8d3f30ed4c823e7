package child

import (
	"syscall"

	"golang.org/x/sys/unix"
)

func dieWithThread(attr *syscall.SysProcAttr) { attr.Pdeathsig = unix.SIGKILL }
