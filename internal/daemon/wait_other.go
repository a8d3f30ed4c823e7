//go:build !linux

package daemon

// wait returns false, because this system has no pidfds.
func wait(uintptr) bool { return false }
