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

// nonblock is 0, because directories of Windows can't contain pipes.
const nonblock = 0

// anyName is false, because Windows would treat a backslash in a name as a slash.
const anyName = false

// unfit returns why a valid element of a key can't be a file's name, or "". A name with a colon would even be a hidden
// stream of another file.
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
	// unreachable are the errors of a share whose server doesn't answer.
	unreachable = []error{
		windows.ERROR_BAD_NETPATH, windows.ERROR_NETNAME_DELETED, windows.ERROR_UNEXP_NET_ERR, windows.ERROR_SEM_TIMEOUT,
		windows.ERROR_HOST_UNREACHABLE, windows.ERROR_NETWORK_UNREACHABLE, windows.ERROR_CONNECTION_REFUSED,
	}
	// noLinks are the errors of a file system without hard links (FAT, exFAT).
	noLinks = []error{windows.ERROR_INVALID_FUNCTION, windows.ERROR_NOT_SUPPORTED}
)

// own does nothing, because a new file inherits the permissions of its folder on Windows.
func own(*os.File, fs.FileInfo, fs.FileMode) {}

// inode returns 0, because a FileInfo has no inode on Windows.
func inode(fs.FileInfo) uint64 { return 0 }

// sameFileSystem reports whether both are the same directory, because a FileInfo doesn't name the volume on Windows.
func sameFileSystem(a, b fs.FileInfo) bool { return os.SameFile(a, b) }

// rmdir removes nothing. A directory that another process has open would stay on Windows, and a put into it would fail.
// An empty directory does no harm.
func rmdir(*directory, string) error {
	return fmt.Errorf("%w: remove this directory by hand", errors.ErrUnsupported)
}

// renameNoReplace fails, because Windows has no rename that refuses to replace a file.
func renameNoReplace(*directory, string, string) error { return store.ErrConditionUnsupported }

// Exchange fails, because Windows can't exchange two files.
func (d *directory) Exchange(string, string) error { return windows.ERROR_NOT_SUPPORTED }

// syncDir does nothing, because Windows can't flush a directory.
func (*Store) syncDir(*directory, string) error { return nil }
