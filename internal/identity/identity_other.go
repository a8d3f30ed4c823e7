//go:build !linux

package identity

import "os"

// Other systems than Linux have no boot id that all processes can read. So no process ever
// counts as gone, and locks are judged by their age alone.

func machineID() string     { return "" }
func bootID() string        { return "" }
func pidNamespace() string  { return "" }
func timeNamespace() string { return "none" }

// Caller returns the process that called this one.
func Caller() int { return os.Getppid() }
