//go:build !linux

package daemon

// wait does nothing on systems without pidfds.
func wait(uintptr) bool { return false }
