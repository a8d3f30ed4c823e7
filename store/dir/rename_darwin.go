package dir

import "golang.org/x/sys/unix"

func renameExclusive(fd int, from, to string) error {
	return unix.RenameatxNp(fd, from, fd, to, unix.RENAME_EXCL)
}

func renameExchange(fd int, a, b string) error {
	return unix.RenameatxNp(fd, a, fd, b, unix.RENAME_SWAP)
}
