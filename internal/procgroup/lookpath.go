package procgroup

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
)

// LookPath returns the path of a command's program. It fails with ErrNotFound or
// ErrNotExecutable.
func LookPath(args []string) (string, error) {
	if len(args) == 0 || args[0] == "" {
		return "", fmt.Errorf("%q: %w", "", ErrNotFound)
	}
	path, err := exec.LookPath(args[0])
	switch {
	case err == nil, errors.Is(err, exec.ErrDot): // "." in PATH is the user's decision
		return path, nil
	case errors.Is(err, exec.ErrNotFound), errors.Is(err, os.ErrNotExist):
		return "", fmt.Errorf("%s: %w", args[0], ErrNotFound)
	}
	return "", fmt.Errorf("%s: %w: %w", args[0], ErrNotExecutable, errors.Unwrap(err))
}
