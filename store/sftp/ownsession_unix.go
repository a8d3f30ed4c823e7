//go:build unix && !linux

package sftp

import "syscall"

// ownSession starts ssh in a session of its own. This system can't kill ssh when this process dies. Then ssh ends
// because its stdin ends, unless its connection hangs.
func ownSession() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setsid: true} }
