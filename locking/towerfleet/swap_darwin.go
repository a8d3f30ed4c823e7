package towerfleet

import "golang.org/x/sys/unix"

// swap exchanges the names of two files in one step.
func swap(a, b string) error {
	return unix.RenameatxNp(unix.AT_FDCWD, a, unix.AT_FDCWD, b, unix.RENAME_SWAP)
}
