//go:build unix

package session

import (
	"fmt"
	"os/signal"
	"syscall"
	"time"

	"github.com/repolock/repolock/internal/procgroup"
)

// Continue is the signal that continues a process that the terminal stopped.
const Continue = syscall.SIGCONT

// RunUnlocked becomes the command, which needs no lock around it.
func RunUnlocked(args []string) (int, error) {
	path, err := procgroup.LookPath(args)
	if err != nil {
		return 0, err
	}
	err = syscall.Exec(path, args, bareEnviron())
	return 0, fmt.Errorf("%s: %w: %w", args[0], procgroup.ErrNotExecutable, err)
}

// Interrupt does to this process what Ctrl-C or Ctrl-\ does: a script that runs us must not
// go on to its next command. Neither must a loop in the shell, which looks whether its
// command died of SIGINT. With others, Interrupt signals the other processes of our job
// too, because the terminal signalled the command alone. It returns if there is no job at
// a terminal.
func Interrupt(sig syscall.Signal, others bool) {
	if sig != syscall.SIGINT && sig != syscall.SIGQUIT || signal.Ignored(sig) || !procgroup.Foreground() {
		return
	}
	pid := syscall.Getpid()
	if others {
		pid = 0
	}
	if sig == syscall.SIGQUIT { // Go would print its stacks
		signal.Ignore(sig)
		_ = syscall.Kill(pid, sig)
		return
	}
	signal.Reset(sig)
	if syscall.Kill(pid, sig) == nil {
		time.Sleep(time.Second) // any thread can take it
	}
}
