//go:build unix

package dir

import (
	"io/fs"
	"os"

	"golang.org/x/sys/unix"
)

// rmdir removes an empty directory. os.Root.Remove wouldn't do: it would remove
// an object that another process has meanwhile put in the directory's place.
func rmdir(d *os.Root, name string) error {
	err := withFd(d, func(fd int) error { return unix.Unlinkat(fd, name, unix.AT_REMOVEDIR) })
	if err != nil {
		return &fs.PathError{Op: "rmdir", Path: name, Err: err}
	}
	return nil
}

// withFd gives the descriptor of a directory to a system call that os.Root
// doesn't have.
func withFd(d *os.Root, call func(fd int) error) error {
	self, err := d.Open(".")
	if err != nil {
		return err
	}
	defer self.Close()
	return control(self, call)
}

func control(f *os.File, call func(fd int) error) error {
	conn, err := f.SyscallConn()
	if err != nil {
		return err
	}
	var errCall error
	if err := conn.Control(func(fd uintptr) { errCall = call(int(fd)) }); err != nil {
		return err
	}
	return errCall
}
