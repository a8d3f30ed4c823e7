//go:build unix

package identity

import (
	"errors"

	"golang.org/x/sys/unix"
)

// exists reports false only on ESRCH: a signal to another user's process fails with EPERM.
func exists(pid int) bool { return !errors.Is(unix.Kill(pid, 0), unix.ESRCH) }
