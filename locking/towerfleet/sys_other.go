//go:build !(darwin || dragonfly || freebsd || linux || netbsd || openbsd)

package towerfleet

import (
	"errors"
	"os"
)

func owner(os.FileInfo) (uid int, known bool) { return 0, false }

func readOnly(error) bool { return false }

const noFollow = 0

func errno(error) (name, message string) { return "", "" }

func noLinks(error) bool { return false }

func noSwap(err error) bool { return errors.Is(err, errors.ErrUnsupported) }
