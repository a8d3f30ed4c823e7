package session

import "syscall"

// Interrupt does nothing: each process on the console gets Ctrl-C.
func Interrupt(syscall.Signal, bool) {}
