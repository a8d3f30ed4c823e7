//go:build unix && !linux && !freebsd

package procgroup

import "syscall"

func dieWithThread(*syscall.SysProcAttr) {} // the guard kills the command
