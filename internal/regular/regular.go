// Package regular opens files that a user names. It accepts only regular files, because a rename replaces a device, and
// opening or reading a FIFO can block for ever.
package regular

import (
	"errors"
	"io/fs"
	"os"

	"github.com/repolock/repolock/internal/fault"
)

// ErrRefused is returned if a path leads to another kind of file.
var ErrRefused = errors.New("another file must be named")

// Open opens a regular file for reading.
func Open(path string) (*os.File, error) {
	return open(path, os.O_RDONLY, 0, false)
}

// Append opens a file to append to it. If the file doesn't exist, Append creates it so that only its owner can read it.
// It also accepts a device such as a terminal, and a descriptor that this process has open, such as its stderr, because
// neither can block.
func Append(path string) (*os.File, error) {
	return open(path, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600, true)
}

// Create creates or empties a file to write to it. It accepts the same files as Append.
func Create(path string) (*os.File, error) {
	f, err := open(path, os.O_WRONLY|os.O_CREATE, 0o666, true)
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err == nil && info.Mode().IsRegular() {
		err = f.Truncate(0)
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

func open(path string, flag int, mode fs.FileMode, device bool) (*os.File, error) {
	if device {
		if f := own(path); f != nil {
			return f, nil
		}
	}
	if err := present(path, device); err != nil { // before the open, because that disturbs the other end of a FIFO
		return nil, err
	}
	f, err := os.OpenFile(path, flag|nonblock, mode)
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err == nil {
		err = check(path, info.Mode(), device)
	}
	if err == nil {
		err = block(f)
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// present returns an error if the file exists and is of a kind that isn't accepted.
func present(path string, device bool) error {
	info, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	return check(path, info.Mode(), device)
}

func check(path string, mode fs.FileMode, device bool) error {
	if mode.IsRegular() || device && mode&fs.ModeCharDevice != 0 {
		return nil
	}
	kind := "no regular file"
	switch {
	case mode.IsDir():
		kind = "a directory"
	case mode&fs.ModeNamedPipe != 0:
		kind = "a FIFO or pipe"
	case mode&fs.ModeSocket != 0:
		kind = "a socket"
	case mode&fs.ModeDevice != 0:
		kind = "a device"
	}
	return fault.New(ErrRefused, "%s is %s: name a regular file", path, kind)
}
