//go:build unix && !linux

package sftp

import "syscall"

// apart can't have ssh killed when this process dies. ssh then ends because its stdin ends, unless
// its connection hangs.
func apart() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setsid: true} }
