package session

import (
	"errors"
	"os"
	"os/exec"
	"syscall"

	"github.com/repolock/repolock/internal/procgroup"
)

// Continue is no signal: Windows stops no process.
const Continue = syscall.Signal(0)

// RunUnlocked runs the command without a lock.
func RunUnlocked(args []string) (int, error) { return Become(args, bareEnviron()) }

// Become runs the command with these variables, and returns its exit code.
func Become(args, environ []string) (int, error) {
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.Env = environ
	err := cmd.Run()
	if _, failed := errors.AsType[*exec.ExitError](err); failed || err == nil {
		return cmd.ProcessState.ExitCode(), nil
	}
	return 0, procgroup.CommandError(args[0], err)
}

// Interrupt does nothing: each process on the console gets Ctrl-C.
func Interrupt(syscall.Signal, bool) {}
