//go:build unix && !linux && !freebsd

package child

import "syscall"

func dieWithThread(*syscall.SysProcAttr) {} // the guard kills the command
