package dir

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"

	"github.com/repolock/repolock/store"
)

// renameNoReplace is for file systems without hard links (FAT, exFAT).
func renameNoReplace(d *os.Root, from, to string) error {
	err := withFd(d, func(fd int) error { return unix.Renameat2(fd, from, fd, to, unix.RENAME_NOREPLACE) })
	if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOSYS) {
		return store.ErrConditionUnsupported
	}
	return taken(d, to, err)
}
