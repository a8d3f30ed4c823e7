//go:build unix

package session

import (
	"fmt"
	"syscall"

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
