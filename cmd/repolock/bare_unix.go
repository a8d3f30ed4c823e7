//go:build unix

package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"syscall"

	"github.com/repolock/repolock/internal/child"
)

// sigcont continues a command that the terminal stopped.
const sigcont = syscall.SIGCONT

// bare becomes the command: there is no lock to be held around it.
func bare(args []string) (int, error) {
	path, err := exec.LookPath(args[0])
	switch {
	case errors.Is(err, exec.ErrNotFound), errors.Is(err, os.ErrNotExist):
		return 0, fmt.Errorf("%s: %w", args[0], child.ErrNotFound)
	case err != nil && !errors.Is(err, exec.ErrDot):
		return 0, fmt.Errorf("%s: %w: %w", args[0], child.ErrNotExecutable, errors.Unwrap(err))
	}
	err = syscall.Exec(path, args, os.Environ())
	return 0, fmt.Errorf("%s: %w: %w", args[0], child.ErrNotExecutable, err)
}
