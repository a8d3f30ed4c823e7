// Package lockfile reads and creates lock files. It follows no symbolic link, and never waits for the other end of a
// pipe.
package lockfile

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"syscall"

	"github.com/repolock/repolock/internal/fault"
	"github.com/repolock/repolock/internal/text"
)

// File is a lock file as it was at one moment.
type File struct {
	Path string      // as the caller named it
	Info fs.FileInfo // attributes of the file
	Body []byte      // content of the file
	// Unreadable is why Body isn't the file's content, in one line, or "". A lock that can't be read counts as held.
	Unreadable string
	// Err is why the file couldn't be opened, or nil.
	Err error
	// Open is the open file; only Write and Create set it. While it is open, no other file can get its inode number.
	Open *os.File
}

// tries is how often Read begins again because another program has replaced the file.
const tries = 5

// Read returns the file at a path, or nil if there is none. A file that is larger than limit, or isn't regular, is
// Unreadable.
func Read(path string, limit int) (*File, error) {
	f := &File{Path: path}
	for range tries {
		var err error
		switch f.Info, err = os.Lstat(path); {
		case errors.Is(err, fs.ErrNotExist):
			return nil, nil
		case err != nil:
			return nil, err
		case !f.Info.Mode().IsRegular():
			f.Unreadable = "it is no regular file"
			return f, nil
		}
		if moved, err := f.read(limit); err != nil {
			return nil, err
		} else if !moved {
			return f, nil
		}
	}
	f.Unreadable = "it was replaced while it was read"
	return f, nil
}

// read reads the file that Lstat has found. moved is true if the path now names another file, or none.
func (f *File) read(limit int) (moved bool, err error) {
	open, err := os.OpenFile(f.Path, os.O_RDONLY|noFollow, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return true, nil
	}
	if err != nil {
		f.Err, f.Unreadable = err, text.Line(err.Error())
		return false, nil
	}
	defer open.Close()
	if now, err := open.Stat(); err != nil || !os.SameFile(f.Info, now) {
		return true, err
	}
	if f.Body, err = io.ReadAll(io.LimitReader(open, int64(limit)+1)); err == nil && len(f.Body) > limit {
		f.Unreadable = fmt.Sprintf("it is larger than %d bytes", limit)
	}
	return false, err
}

// Write creates a file that must not exist, and syncs it. If it can't complete the file, it removes it.
func Write(path string, body []byte, mode fs.FileMode) (*File, error) {
	open, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL, mode)
	if err != nil {
		return nil, err
	}
	f := &File{Path: path, Body: body, Open: open}
	_, err = open.Write(body)
	err = cmp.Or(err, open.Sync())
	if err == nil {
		f.Info, err = open.Stat()
	}
	if err != nil {
		open.Close()
		_ = os.Remove(path) // if this fails, Cleanup or a person removes the file later
		return nil, err
	}
	return f, nil
}

// Create creates a lock file that is complete when it appears, even after a power cut. It writes and syncs the file
// temp, and links path to it. It returns fs.ErrExist if path exists. If the file system has no hard links, a reader can
// find the file half written. link is os.Link, except in tests.
func Create(path, temp string, body []byte, mode fs.FileMode, link func(from, to string) error) (*File, error) {
	f, err := Write(temp, body, mode)
	if err != nil {
		return nil, err
	}
	err = link(temp, path)
	if now, failed := os.Lstat(path); failed == nil && os.SameFile(now, f.Info) {
		err = nil // an NFS server has made the link, but its answer was lost
	}
	_ = os.Remove(temp) // if this fails, Cleanup removes it later
	if err == nil {
		f.Path = path
		return f, nil
	}
	f.Open.Close()
	if NoLinks(err) {
		return Write(path, body, mode)
	}
	return nil, err
}

// NoLinks reports whether a link failed because the file system has no hard links, like FAT.
func NoLinks(err error) bool {
	return errors.Is(err, errors.ErrUnsupported) || errors.Is(err, syscall.EPERM) || errors.Is(err, syscall.EMLINK)
}

// Classify adds the class fault.ServerPermission to *err if the file system refuses this user, or is
// mounted read-only.
func Classify(err *error) {
	if (errors.Is(*err, fs.ErrPermission) || errors.Is(*err, syscall.EROFS)) && !errors.Is(*err, fault.ServerPermission) {
		*err = fault.As(fault.ServerPermission, *err)
	}
}
