//go:build !linux

package dir

import (
	"errors"
	"os"
	"time"
)

// late is empty, because this system doesn't show the type of a mount.
var late map[string]string

func mountType(*os.File) string { return "" }

func flockHolder(*os.File) string { return heldByAnother }

// showsNew is true, because no file system of this system is known to hide a name in a directory that is open already.
func showsNew(*os.File) bool { return true }

func stamps(*directory) (changed, now time.Time, err error) {
	return changed, now, errors.ErrUnsupported
}
