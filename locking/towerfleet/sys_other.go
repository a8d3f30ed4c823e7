//go:build !(darwin || dragonfly || freebsd || linux || netbsd || openbsd)

package towerfleet

import (
	"errors"
	"os"
)

// Without the flock of a directory New refuses it.
func tryFlock(*os.File) (bool, error) { return false, errors.ErrUnsupported }

const noFollow = 0

func errno(error) (name, message string) { return "", "" }

func noLinks(error) bool { return false }

func noSwap(err error) bool { return errors.Is(err, errors.ErrUnsupported) }
