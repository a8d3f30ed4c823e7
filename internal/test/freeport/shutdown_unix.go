//go:build unix

package freeport

import "syscall"

func shutdown(fd uintptr) { _ = syscall.Shutdown(int(fd), syscall.SHUT_RD) }
