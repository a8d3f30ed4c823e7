//go:build unix

package session

import (
	"fmt"
	"os/signal"
	"syscall"
	"time"

	"github.com/repolock/repolock/internal/procgroup"
)

// Continue is the signal that continues a stopped process.
const Continue = syscall.SIGCONT

// RunUnlocked replaces this process by the command, without a lock.
func RunUnlocked(args []string) (int, error) { return Become(args, bareEnviron()) }

// Become replaces this process by the command, with these variables.
func Become(args, environ []string) (int, error) {
	path, err := procgroup.LookPath(args)
	if err != nil {
		return 0, err
	}
	err = syscall.Exec(path, args, environ)
	return 0, fmt.Errorf("%s: %w: %w", args[0], procgroup.ErrNotExecutable, err)
}

// Interrupt ends this process by the signal of Ctrl-C or Ctrl-\. Otherwise a script, or a loop in the shell, would go
// on to its next command, because the shell checks whether its command died of SIGINT. If others is set, Interrupt
// also signals the other processes of our job, because the terminal has signalled only the command. It returns if
// there is no job at a terminal.
func Interrupt(sig syscall.Signal, others bool) {
	if sig != syscall.SIGINT && sig != syscall.SIGQUIT || signal.Ignored(sig) || !procgroup.Foreground() {
		return
	}
	pid := syscall.Getpid()
	if others {
		pid = 0
	}
	if sig == syscall.SIGQUIT { // or Go prints its stacks
		signal.Ignore(sig)
		_ = syscall.Kill(pid, sig)
		return
	}
	signal.Reset(sig)
	if syscall.Kill(pid, sig) == nil {
		time.Sleep(time.Second) // until a thread takes the signal
	}
}
