package dir

import (
	"errors"

	"golang.org/x/sys/windows"
)

var (
	noSpace  = []error{windows.ERROR_DISK_FULL, windows.ERROR_HANDLE_DISK_FULL}
	readOnly = []error{windows.ERROR_WRITE_PROTECT}
)

// noLinks says that the file system has no hard links (FAT, exFAT).
func noLinks(err error) bool {
	return errors.Is(err, windows.ERROR_INVALID_FUNCTION) || errors.Is(err, windows.ERROR_NOT_SUPPORTED)
}
