// Package lockfile reads and creates files that are locks. It follows no symbolic link, and waits
// for no pipe.
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

// File is a lock file at one moment.
type File struct {
	Path string
	Info fs.FileInfo
	Body []byte
	// Trouble is why Body isn't the file's content, in one line. Such a lock is held.
	Trouble string
	// Err is the system's error, if it doesn't let this user open the file.
	Err error
	// Open is the file itself, if Write or Create has created it. Meanwhile no other file gets its
	// inode number.
	Open *os.File
}

// tries is how often Read looks at a file that other programs replace each time.
const tries = 5

// Read returns the file with a name, or nil if there is none. A larger file than limit, and a
// file of another kind, has Trouble.
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
			f.Trouble = "it is no regular file"
			return f, nil
		}
		if moved, err := f.read(limit); err != nil {
			return nil, err
		} else if !moved {
			return f, nil
		}
	}
	f.Trouble = "it was replaced while it was read"
	return f, nil
}

// read reads the file of f.Info. It reports true if the name has another file now, or none.
func (f *File) read(limit int) (moved bool, err error) {
	open, err := os.OpenFile(f.Path, os.O_RDONLY|noFollow, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return true, nil
	}
	if err != nil {
		f.Err, f.Trouble = err, text.Line(err.Error())
		return false, nil
	}
	defer open.Close()
	if now, err := open.Stat(); err != nil || !os.SameFile(f.Info, now) {
		return true, err
	}
	if f.Body, err = io.ReadAll(io.LimitReader(open, int64(limit)+1)); err == nil && len(f.Body) > limit {
		f.Trouble = fmt.Sprintf("it is larger than %d bytes", limit)
	}
	return false, err
}

// Write creates a file that must not exist, and syncs it. It removes a file that it can't complete.
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
		_ = os.Remove(path) // on a disk that broke, Cleanup or a person removes it later
		return nil, err
	}
	return f, nil
}

// Create creates a lock file that is complete when it appears, also after a power cut: link, such
// as os.Link, links it to a synced file with the name temp. Its error is fs.ErrExist if there is a
// file. If the file system has no hard links, a reader can see the file half written.
func Create(path, temp string, body []byte, mode fs.FileMode, link func(from, to string) error) (*File, error) {
	f, err := Write(temp, body, mode)
	if err != nil {
		return nil, err
	}
	err = link(temp, path)
	if now, failed := os.Lstat(path); failed == nil && os.SameFile(now, f.Info) {
		err = nil // a server of NFS can have made the link, and its answer was lost
	}
	_ = os.Remove(temp) // if the second name stays, Cleanup removes it later
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

// NoLinks reports whether a link failed because the file system has none, as FAT.
func NoLinks(err error) bool {
	return errors.Is(err, errors.ErrUnsupported) || errors.Is(err, syscall.EPERM) || errors.Is(err, syscall.EMLINK)
}

// Classify adds fault.ServerPermission to an error if the file system refuses this user or all users.
func Classify(err *error) {
	if (errors.Is(*err, fs.ErrPermission) || errors.Is(*err, syscall.EROFS)) && !errors.Is(*err, fault.ServerPermission) {
		*err = fault.As(fault.ServerPermission, *err)
	}
}
