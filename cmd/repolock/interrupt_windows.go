package main

import "syscall"

// interrupt does nothing: everyone on the console gets Ctrl-C.
func interrupt(syscall.Signal, bool) {}
