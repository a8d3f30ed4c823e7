//go:build unix

package main

import (
	"fmt"
	"syscall"

	"github.com/repolock/repolock/internal/child"
)

// sigcont continues a command that the terminal stopped.
const sigcont = syscall.SIGCONT

// bare becomes the command: there is no lock to be held around it.
func bare(args []string) (int, error) {
	path, err := child.LookPath(args)
	if err != nil {
		return 0, err
	}
	err = syscall.Exec(path, args, bareEnviron())
	return 0, fmt.Errorf("%s: %w: %w", args[0], child.ErrNotExecutable, err)
}
