//go:build unix

package lockfile

import "syscall"

// noFollow makes open fail at a symbolic link, and return at once at a pipe.
const noFollow = syscall.O_NOFOLLOW | syscall.O_NONBLOCK
