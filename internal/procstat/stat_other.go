//go:build !linux

package procstat

import "syscall"

// Read can't read any process.
func Read(string) (Stat, bool) { return Stat{}, true }

// SignalMarked can't see the environment of any process.
func SignalMarked(string, int, syscall.Signal) {}
