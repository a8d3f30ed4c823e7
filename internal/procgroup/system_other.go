//go:build unix && !linux

package procgroup

import (
	"os"
	"os/signal"

	"golang.org/x/sys/unix"
)

var guardProgram = func() string {
	path, err := os.Executable()
	if err != nil {
		return os.Args[0]
	}
	return path
}

func nameProcess(string) {}

// awake returns nil: these systems don't list the processes of a group.
func awake(int, bool, func(int) bool) []int { return nil }

// adoptOrphans does nothing: process 1 adopts orphans, and kill(2) reports whether the
// group is empty.
func adoptOrphans() {}
func leaveOrphans() {}

func emptySignalMask() (restore func()) { return func() {} }

// withoutTTOU has no undo: Go has no way back to the default. The command is forked before
// the first call.
func withoutTTOU() (restore func()) {
	signal.Ignore(unix.SIGTTOU)
	return func() {}
}

// notifyStop doesn't catch SIGTSTP, because Go has no way back to the default, which we
// need to stop ourselves. So a SIGTSTP to us alone stops only us, and later the guard stops
// the command.
func notifyStop() chan os.Signal { return make(chan os.Signal) }

func defaultStop() (restore func()) { return func() {} }
