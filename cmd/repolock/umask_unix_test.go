//go:build unix

package main

import "syscall"

// openUmask lets other users read the tests' files, as most users' umask does.
func openUmask() { syscall.Umask(0o022) }
