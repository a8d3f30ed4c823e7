//go:build unix

package regular

import (
	"os"
	"strconv"
	"syscall"

	"github.com/repolock/repolock/internal/lazyregexp"
)

// nonblock makes an open return at once, even if a FIFO has replaced the file.
const nonblock = syscall.O_NONBLOCK | syscall.O_NOCTTY

// block removes O_NONBLOCK, so that writes wait as usual.
func block(f *os.File) error { return syscall.SetNonblock(int(f.Fd()), false) }

var descriptor = lazyregexp.New(`^/(?:dev|proc/self)/fd/([0-9]+)$`)

// own returns a copy of an open descriptor of this process, if the path leads to it and it isn't a file: stdout,
// stderr, or a descriptor whose number is in the path, as for >(…) in a shell. A pipe that is open already has its
// reader, and a socket can't be opened again.
func own(path string) *os.File {
	info, err := os.Stat(path)
	if err != nil || info.Mode().IsRegular() || info.IsDir() {
		return nil
	}
	is := info.Sys().(*syscall.Stat_t)
	open := []int{1, 2}
	if number := descriptor.FindStringSubmatch(path); number != nil {
		if fd, err := strconv.Atoi(number[1]); err == nil {
			open = append(open, fd)
		}
	}
	for _, fd := range open {
		var stat syscall.Stat_t
		if syscall.Fstat(fd, &stat) != nil || stat.Dev != is.Dev || stat.Ino != is.Ino {
			continue
		}
		syscall.ForkLock.RLock()
		defer syscall.ForkLock.RUnlock()
		copied, err := syscall.Dup(fd)
		if err != nil {
			return nil
		}
		syscall.CloseOnExec(copied)
		return os.NewFile(uintptr(copied), path)
	}
	return nil
}
