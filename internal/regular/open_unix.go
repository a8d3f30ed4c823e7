//go:build unix

package regular

import (
	"os"
	"syscall"
)

// nonblock has an open return at once if a FIFO has taken a file's place.
const nonblock = syscall.O_NONBLOCK | syscall.O_NOCTTY

// block has writes wait as usual.
func block(f *os.File) error { return syscall.SetNonblock(int(f.Fd()), false) }

// own returns a copy of stdout or stderr if a path leads to it and it is no file: a pipe or
// socket that is open already needs no reader to be found, and some can't be opened again.
func own(path string) *os.File {
	info, err := os.Stat(path)
	if err != nil || info.Mode().IsRegular() || info.IsDir() {
		return nil
	}
	for _, stream := range []*os.File{os.Stdout, os.Stderr} {
		if is, err := stream.Stat(); err != nil || !os.SameFile(info, is) {
			continue
		}
		syscall.ForkLock.RLock()
		defer syscall.ForkLock.RUnlock()
		fd, err := syscall.Dup(int(stream.Fd()))
		if err != nil {
			return nil
		}
		syscall.CloseOnExec(fd)
		return os.NewFile(uintptr(fd), path)
	}
	return nil
}
