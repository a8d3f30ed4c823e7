package dir

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"github.com/repolock/repolock/store"
	"github.com/repolock/repolock/store/internal/files"
)

// directory is the repository's directory, or one below it. The errors of os.Root name a system call and one element of
// a path, which can be a temporary file. The errors of this type name the failed action and the full path.
type directory struct {
	root *os.Root
	path string // full path
}

// Close closes the directory.
func (d *directory) Close() error { return d.root.Close() }

// OpenRoot opens a directory inside this one.
func (d *directory) OpenRoot(name string) (*directory, error) {
	root, err := d.root.OpenRoot(name)
	if err != nil {
		return nil, d.unopened(name, err)
	}
	return &directory{root, filepath.Clean(root.Name())}, nil // os.Root has joined the names already
}

// Open opens a file or a directory for reading. It doesn't wait for the writer of a pipe.
func (d *directory) Open(name string) (*os.File, error) {
	f, err := d.root.OpenFile(name, os.O_RDONLY|nonblock, 0)
	return f, d.unopened(name, err)
}

// Create makes a new file. It fails if the file exists.
func (d *directory) Create(name string, mode fs.FileMode) (*os.File, error) {
	f, err := d.root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	return f, cant("write into", d.path, err)
}

// Lstat returns the attributes of a file, or of a link itself.
func (d *directory) Lstat(name string) (fs.FileInfo, error) {
	info, err := d.root.Lstat(name)
	return info, d.unopened(name, err)
}

// Rename moves a file within the directory.
func (d *directory) Rename(from, to string) error {
	return cant("write into", d.path, d.root.Rename(from, to))
}

// move renames or exchanges two files.
func move(step func(from, to string) error, from, to string) error { return step(from, to) }

// Link gives a file a second name.
func (d *directory) Link(from, to string) error {
	return cant("write into", d.path, d.root.Link(from, to))
}

// Remove removes a file or an empty directory.
func (d *directory) Remove(name string) error {
	return cant("delete from", d.path, d.root.Remove(name))
}

// names yields the names in the directory, unsorted. It opens the directory anew: a directory that stays open can end
// where it ended at its open, and so lack newer names. A directory that was removed meanwhile has no names.
func (d *directory) names() iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		self, err := d.Open(".")
		if err == nil {
			defer self.Close()
		}
		for err == nil {
			var names []string
			names, err = self.Readdirnames(1024)
			for _, name := range names {
				if !yield(name, nil) {
					return
				}
			}
			if err == io.EOF {
				return
			}
			err = cant("list", d.path, err)
		}
		if !errors.Is(err, fs.ErrNotExist) {
			yield("", err)
		}
	}
}

// unopened returns the error of a failed open or stat, or nil. If the file is a temporary one, the error names the
// directory instead.
func (d *directory) unopened(name string, err error) error {
	if err == nil {
		return nil
	}
	if files.IsTemp(name) {
		return cant("write into", d.path, err)
	}
	return cant("open", filepath.Join(d.path, name), err)
}

// full returns the full path of a name, for messages.
func (d *directory) full(name string) string { return shorten(filepath.Join(d.path, name)) }

// openDir opens a directory below the root. It follows no link, because an object that is put through a link would be
// listed under another key. os.Root alone isn't enough: it follows links that stay inside.
func openDir(root *directory, dir string) (*directory, error) {
	return descend(root, dir, enter)
}

// made has the paths of the directories that this process has made.
var made sync.Map

// makeDir is openDir, but makes missing directories. Another process can remove an empty directory at any time. Then a
// request in it fails with fs.ErrNotExist.
func (s *Store) makeDir(root *directory, dir string) (*directory, error) {
	path := s.path
	return descend(root, dir, func(parent *directory, name string) (*directory, error) {
		path += "/" + name
		d, err := enter(parent, name)
		if !errors.Is(err, fs.ErrNotExist) {
			return d, err
		}
		mine, err := s.mkdir(parent, name)
		if mine {
			made.Store(path, nil)
		}
		if err != nil {
			return nil, err
		}
		return enter(parent, name)
	})
}

// mkdir makes a directory, and reports whether it did. It returns no error if the directory exists. The directory gets
// its owner and mode before its name, so that it never refuses another user.
func (s *Store) mkdir(parent *directory, name string) (made bool, err error) {
	temp := files.NewTemp()
	err = s.mkdirOwned(parent, temp)
	if err == nil && parent.Rename(temp, name) == nil {
		return true, nil
	}
	_ = parent.Remove(temp)
	if err != nil {
		return false, err
	}
	// Either the directory exists by now, or this file system can't rename directories.
	err = s.mkdirOwned(parent, name)
	if errors.Is(err, fs.ErrExist) {
		return false, nil
	}
	return err == nil, err
}

// mkdirOwned makes a directory with the owner of its parent and the mode of the repository.
func (s *Store) mkdirOwned(parent *directory, name string) error {
	folder, err := parent.Lstat(".")
	if err != nil {
		return err
	}
	if err := parent.root.Mkdir(name, s.dirMode.Perm()); err != nil {
		return cant("write into", parent.path, err)
	}
	f, err := parent.Open(name)
	if err != nil {
		return err
	}
	defer f.Close()
	made, err := parent.Lstat(name)
	opened, err1 := f.Stat()
	if err := cmp.Or(err, err1); err != nil {
		return err
	}
	// f must be the new directory, and neither a link's target nor a directory that has replaced it.
	if _, err := f.ReadDir(1); errors.Is(err, io.EOF) && os.SameFile(made, opened) {
		own(f, folder, s.dirMode)
	}
	return nil
}

// descend opens a directory below the root. It opens each element of the path by calling enter.
func descend(root *directory, dir string, enter func(parent *directory, name string) (*directory, error)) (*directory, error) {
	if dir == "" {
		return root.OpenRoot(".")
	}
	at := root
	for name := range strings.SplitSeq(dir, "/") {
		next, err := enter(at, name)
		if at != root {
			at.Close()
		}
		if err != nil {
			return nil, err
		}
		at = next
	}
	return at, nil
}

// enter opens a directory inside another one. It doesn't follow a link.
func enter(parent *directory, name string) (*directory, error) {
	info, err := parent.Lstat(name)
	switch {
	case err != nil:
		return nil, err
	case info.Mode().IsRegular():
		return nil, parent.unopened(name, errNotDir)
	case !info.IsDir():
		return nil, fmt.Errorf("%w: %q is not a directory but a %s", store.ErrIrregular, parent.full(name), kind(info.Mode()))
	}
	return parent.OpenRoot(name)
}

// kind describes a file that is neither regular nor a directory.
func kind(mode fs.FileMode) string {
	switch {
	case mode&fs.ModeSymlink != 0:
		return "symbolic link"
	case mode&fs.ModeNamedPipe != 0:
		return "pipe"
	case mode&fs.ModeSocket != 0:
		return "socket"
	default:
		return "special file"
	}
}
