//go:build unix && !linux

package child

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

// awake can't tell the processes of a group.
func awake(int, bool, func(int) bool) []int { return nil }

// adoptOrphans: orphans go to process 1, and we ask the group itself whether it
// is empty.
func adoptOrphans() {}
func leaveOrphans() {}

func emptySignalMask() (restore func()) { return func() {} }

// withoutTTOU lasts: Go has no way back to the default. The command is forked
// before the first time.
func withoutTTOU() (restore func()) {
	signal.Ignore(unix.SIGTTOU)
	return func() {}
}

// notifyStop doesn't catch SIGTSTP, since Go has no way back to the default
// which we need to stop ourselves. So a SIGTSTP that is meant for us alone stops
// us alone, and then the guard the command.
func notifyStop() chan os.Signal { return make(chan os.Signal) }

func defaultStop() (restore func()) { return func() {} }
