//go:build !(darwin || dragonfly || freebsd || linux || netbsd || openbsd)

package dir

import (
	"errors"
	"os"
)

// A directory can't be locked here.
func tryLock(*os.File) (bool, error) { return false, errors.ErrUnsupported }

func unlock(*os.File) {}

func flockHolder(*os.File) string { return heldByAnother }
