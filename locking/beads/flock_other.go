//go:build !(darwin || dragonfly || freebsd || linux || netbsd || openbsd)

package beads

import (
	"errors"
	"os"
)

// tryFlock: a directory can't be locked here.
func tryFlock(*os.File) (bool, error) { return false, errors.ErrUnsupported }
