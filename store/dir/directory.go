package dir

import (
	"io/fs"
	"os"
	"path/filepath"
)

// directory is the repository's directory, or one below it. An error of os.Root names a system call
// and an element of the path, which can be a temporary file's name. An error of a directory says what
// can't be done, and names it in full.
type directory struct {
	root *os.Root
	path string // in full
}

// Close closes the directory.
func (d *directory) Close() error { return d.root.Close() }

// OpenRoot opens a directory in this one.
func (d *directory) OpenRoot(name string) (*directory, error) {
	root, err := d.root.OpenRoot(name)
	if err != nil {
		return nil, d.unopened(name, err)
	}
	return &directory{root, filepath.Join(d.path, name)}, nil
}

// Open opens a file or a directory for reading.
func (d *directory) Open(name string) (*os.File, error) { return d.OpenFile(name, os.O_RDONLY, 0) }

// OpenFile opens a file, or makes one.
func (d *directory) OpenFile(name string, flag int, mode fs.FileMode) (*os.File, error) {
	f, err := d.root.OpenFile(name, flag, mode)
	if flag&os.O_CREATE != 0 {
		return f, cant("write into", d.path, err)
	}
	return f, d.unopened(name, err)
}

// Lstat doesn't follow a link.
func (d *directory) Lstat(name string) (fs.FileInfo, error) {
	info, err := d.root.Lstat(name)
	return info, d.unopened(name, err)
}

// Mkdir makes a directory in this one.
func (d *directory) Mkdir(name string, mode fs.FileMode) error {
	return cant("write into", d.path, d.root.Mkdir(name, mode))
}

// Rename moves a file within the directory.
func (d *directory) Rename(from, to string) error {
	return cant("write into", d.path, d.root.Rename(from, to))
}

// Link gives a file a second name.
func (d *directory) Link(from, to string) error {
	return cant("write into", d.path, d.root.Link(from, to))
}

// Remove removes a file.
func (d *directory) Remove(name string) error {
	return cant("delete from", d.path, d.root.Remove(name))
}

// unopened returns the error of a file or a directory that can't be opened or looked at. A temporary one
// stands for the directory that it was made in.
func (d *directory) unopened(name string, err error) error {
	if isTemp(name) {
		return cant("write into", d.path, err)
	}
	return cant("open", filepath.Join(d.path, name), err)
}

// full returns a name in the directory in full, for messages.
func (d *directory) full(name string) string { return shown(filepath.Join(d.path, name)) }
