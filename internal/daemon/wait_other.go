//go:build !linux

package daemon

// wait reports false: this system has no pidfds.
func wait(uintptr) bool { return false }
