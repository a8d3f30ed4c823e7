package dir

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"
	"syscall"

	"github.com/repolock/repolock/store"
)

// errNotDir is what is found where a file is in place of a directory.
var errNotDir error = syscall.ENOTDIR

// errFolder is returned for a directory in place of a file. It is no object.
var errFolder = errors.New("a directory")

// absent reports whether an error says that there is no object, or no directory, in a place.
func absent(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, errNotDir) || errors.Is(err, errFolder)
}

// checkKey is store.CheckKey, and refuses the names that this store uses itself.
func checkKey(key string) error {
	if err := store.CheckKey(key); err != nil {
		return err
	}
	for element := range strings.SplitSeq(key, "/") {
		if isTemp(element) {
			return fmt.Errorf("%w: %q is a temporary file's name", store.ErrInvalidKey, element)
		}
		if why := unfit(element); why != "" {
			return fmt.Errorf("%w: %q %s", store.ErrInvalidKey, element, why)
		}
	}
	return nil
}

// listable reports whether a key can be one that List shows although it isn't valid: the
// name of a file can be any, and a folder's ends with a slash.
func listable(key string) bool {
	path := strings.TrimSuffix(key, "/")
	for element := range strings.SplitSeq(path, "/") {
		if element == "" || element == "." || element == ".." || isTemp(element) || strings.Contains(element, "\x00") {
			return false
		}
	}
	return anyName || checkKey(path) == nil
}

// split cuts a key after its last slash; dir is "" for a key in the root.
func split(key string) (dir, name string) {
	if i := strings.LastIndexByte(key, '/'); i >= 0 {
		return key[:i], key[i+1:]
	}
	return "", key
}

// openDir opens a directory below the root.
//
// os.Root would follow a symbolic link that stays inside. Here none is
// followed, since what is put through a link would be listed under another key.
func openDir(root *directory, dir string) (*directory, error) {
	return descend(root, dir, enter)
}

// makeDir is openDir that makes missing directories. Another process can remove an empty one
// again at any time; any request in it then fails with fs.ErrNotExist.
func (s *Store) makeDir(root *directory, dir string) (*directory, error) {
	path := ""
	return descend(root, dir, func(parent *directory, name string) (*directory, error) {
		path = strings.TrimPrefix(path+"/"+name, "/")
		d, err := enter(parent, name)
		if !errors.Is(err, fs.ErrNotExist) {
			return d, err
		}
		mine, err := s.mkdir(parent, name)
		if mine {
			made.Store(s.path+"/"+path, nil)
		}
		if err != nil {
			return nil, err
		}
		return enter(parent, name)
	})
}

// mkdir makes a directory. It has its owner and mode before it has its name, lest another user
// be refused in between. One that is there already is no error, and not made.
func (s *Store) mkdir(parent *directory, name string) (made bool, err error) {
	temp := newTemp()
	if err := s.mkdirOwned(parent, temp); err != nil {
		_ = parent.Remove(temp)
		return false, err
	}
	if parent.Rename(temp, name) == nil {
		return true, nil
	}
	_ = parent.Remove(temp)
	// It is there by now, or this file system can't rename directories.
	err = s.mkdirOwned(parent, name)
	if errors.Is(err, fs.ErrExist) {
		return false, nil
	}
	return err == nil, err
}

func (s *Store) mkdirOwned(parent *directory, name string) error {
	folder, err := parent.Lstat(".")
	if err != nil {
		return err
	}
	if err := parent.Mkdir(name, s.dirMode.Perm()); err != nil {
		return err
	}
	f, err := parent.OpenFile(name, os.O_RDONLY|nonblock, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	made, err := parent.Lstat(name)
	opened, err1 := f.Stat()
	if err := cmp.Or(err, err1); err != nil {
		return err
	}
	// And no link to another, nor another in its place.
	if _, err := f.ReadDir(1); errors.Is(err, io.EOF) && os.SameFile(made, opened) {
		own(f, folder, s.dirMode)
	}
	return nil
}

// descend opens a directory below the root, each element by enter.
func descend(root *directory, dir string, enter func(parent *directory, name string) (*directory, error)) (*directory, error) {
	at, err := root.OpenRoot(".")
	if err != nil || dir == "" {
		return at, err
	}
	for name := range strings.SplitSeq(dir, "/") {
		next, err := enter(at, name)
		at.Close()
		if err != nil {
			return nil, err
		}
		at = next
	}
	return at, nil
}

// enter opens a directory in another one.
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

// kind names what is neither a file nor a directory.
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
