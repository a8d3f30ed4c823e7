//go:build unix && !linux

package sftp

import "syscall"

// ownSession can't have ssh killed when this process dies. ssh then ends because its stdin ends, unless
// its connection hangs.
func ownSession() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setsid: true} }
