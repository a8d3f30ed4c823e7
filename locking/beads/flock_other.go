//go:build !(darwin || dragonfly || freebsd || linux || netbsd || openbsd)

package beads

import (
	"errors"
	"os"
)

// systemFlock: a directory can't be locked here.
func systemFlock(*os.File) (bool, error) { return false, errors.ErrUnsupported }
