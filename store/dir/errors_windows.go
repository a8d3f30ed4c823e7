package dir

import (
	"errors"

	"golang.org/x/sys/windows"
)

var (
	noSpace  = []error{windows.ERROR_DISK_FULL, windows.ERROR_HANDLE_DISK_FULL}
	readOnly = []error{windows.ERROR_WRITE_PROTECT}
	// unreachable is what shares say of a server that doesn't answer.
	unreachable = []error{
		windows.ERROR_BAD_NETPATH, windows.ERROR_NETNAME_DELETED, windows.ERROR_UNEXP_NET_ERR, windows.ERROR_SEM_TIMEOUT,
		windows.ERROR_HOST_UNREACHABLE, windows.ERROR_NETWORK_UNREACHABLE, windows.ERROR_CONNECTION_REFUSED,
	}
)

// noLinks says that the file system has no hard links (FAT, exFAT).
func noLinks(err error) bool {
	return errors.Is(err, windows.ERROR_INVALID_FUNCTION) || errors.Is(err, windows.ERROR_NOT_SUPPORTED)
}
