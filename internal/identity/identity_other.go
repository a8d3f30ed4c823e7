//go:build !linux

package identity

import "os"

// Only Linux has a boot id that all processes can read. On other systems Process.Gone reports false, and only the age
// of a lock makes it stale.

func machineID() string     { return "" }
func bootID() string        { return "" }
func pidNamespace() string  { return "" }
func timeNamespace() string { return "none" }

// Caller returns the pid of the process that called this one.
func Caller() int { return os.Getppid() }
