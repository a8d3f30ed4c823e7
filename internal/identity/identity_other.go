//go:build !linux

package identity

import "os"

// Only Linux has a boot id that all processes can read. On other systems no process counts as gone,
// and only the age of a lock makes it stale.

func machineID() string     { return "" }
func bootID() string        { return "" }
func pidNamespace() string  { return "" }
func timeNamespace() string { return "none" }

// Caller returns the process that called this one.
func Caller() int { return os.Getppid() }
