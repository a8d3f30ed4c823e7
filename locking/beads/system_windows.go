package beads

import (
	"errors"

	"golang.org/x/sys/windows"
)

// nonblock is 0: there are no pipes in directories of Windows.
const nonblock = 0

// isNoLinks reports whether an error is that of a file system without hard links (FAT).
func isNoLinks(err error) bool {
	return errors.Is(err, windows.ERROR_INVALID_FUNCTION) || errors.Is(err, windows.ERROR_NOT_SUPPORTED)
}
