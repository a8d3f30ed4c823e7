package main

import (
	"errors"
	"os"
	"os/exec"
	"syscall"

	"github.com/repolock/repolock/internal/child"
)

// sigcont is nothing that there is on Windows, where nothing is ever stopped.
const sigcont = syscall.Signal(0)

// bare runs the command: there is no lock to be held around it.
func bare(args []string) (int, error) {
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.Env = bareEnviron()
	err := cmd.Run()
	var exit *exec.ExitError
	switch {
	case err == nil:
		return 0, nil
	case errors.As(err, &exit):
		return exit.ExitCode(), nil
	default:
		return 0, child.CommandError(args[0], err)
	}
}
