//go:build unix

package dir

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

func syncDir(root *os.Root, dir string) error {
	f, err := root.Open(dir)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := f.Sync(); !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.ENOTSUP) {
		return err
	}
	return nil // a file system that has no such thing (some FUSE, SMB)
}
