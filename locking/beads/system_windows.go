package beads

import (
	"errors"
	"io/fs"
	"os"

	"golang.org/x/sys/windows"
)

// New refuses this system, so that the functions below only have to compile.
func inode(fs.FileInfo) uint64 { return 0 }

type change struct{}

func stamp(*os.File) (change, error) { return change{}, errors.ErrUnsupported }

// nonblock is 0: there are no pipes in directories of Windows.
const nonblock = 0

// isNoLinks reports whether an error is that of a file system without hard links (FAT).
func isNoLinks(err error) bool {
	return errors.Is(err, windows.ERROR_INVALID_FUNCTION) || errors.Is(err, windows.ERROR_NOT_SUPPORTED)
}
