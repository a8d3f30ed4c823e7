//go:build unix && !linux

package sftp

import "syscall"

// apart has no signal at our death: ssh ends at the end of its stdin, unless its connection hangs.
func apart() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setsid: true} }
