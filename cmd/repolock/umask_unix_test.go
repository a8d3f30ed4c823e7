//go:build unix

package main

import "syscall"

// openUmask lets others read what tests make, as with most people's umask.
func openUmask() { syscall.Umask(0o022) }
