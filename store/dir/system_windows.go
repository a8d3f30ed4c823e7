package dir

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/windows"

	"github.com/repolock/repolock/store"
)

// nonblock is 0: there are no pipes in directories of Windows.
const nonblock = 0

// anyName: a backslash would be a slash here.
const anyName = false

// unfit says why a name that is a valid key can't be a file's. A colon would
// even write to a hidden stream of another file.
func unfit(name string) string {
	switch {
	case strings.ContainsAny(name, `<>:"|?*`) || strings.ContainsFunc(name, func(r rune) bool { return r < ' ' }):
		return `has a character that Windows doesn't allow in a file's name`
	case strings.HasSuffix(name, ".") || strings.HasSuffix(name, " "):
		return "ends with a dot or a space, which Windows drops"
	case !filepath.IsLocal(name):
		return "is a device's name on Windows"
	}
	return ""
}

var (
	noSpace  = []error{windows.ERROR_DISK_FULL, windows.ERROR_HANDLE_DISK_FULL}
	readOnly = []error{windows.ERROR_WRITE_PROTECT}
	// unreachable is what shares say of a server that doesn't answer.
	unreachable = []error{
		windows.ERROR_BAD_NETPATH, windows.ERROR_NETNAME_DELETED, windows.ERROR_UNEXP_NET_ERR, windows.ERROR_SEM_TIMEOUT,
		windows.ERROR_HOST_UNREACHABLE, windows.ERROR_NETWORK_UNREACHABLE, windows.ERROR_CONNECTION_REFUSED,
	}
	// noLinks are the errors of a file system without hard links (FAT, exFAT).
	noLinks = []error{windows.ERROR_INVALID_FUNCTION, windows.ERROR_NOT_SUPPORTED}
)

// own does nothing: a new file inherits the rights of its folder here.
func own(*os.File, fs.FileInfo, fs.FileMode) {}

// inode returns 0: a FileInfo of Windows has none.
func inode(fs.FileInfo) uint64 { return 0 }

// sameFileSystem is stricter than its name: it reports whether both are the same directory,
// because a FileInfo of Windows doesn't have the volume.
func sameFileSystem(a, b fs.FileInfo) bool { return os.SameFile(a, b) }

// rmdir removes nothing: a directory that another process has open would
// linger on Windows, and fail what is put in it. An empty one does no harm.
func rmdir(*directory, string) error {
	return fmt.Errorf("%w: remove this directory by hand", errors.ErrUnsupported)
}

// There is no such rename here.
func renameNoReplace(*directory, string, string) error { return store.ErrConditionUnsupported }

// syncDir does nothing: Windows can't flush a directory.
func syncDir(*directory, string) error { return nil }
