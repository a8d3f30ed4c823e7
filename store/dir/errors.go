package dir

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"
	"syscall"

	"github.com/repolock/repolock/internal/fault"
	"github.com/repolock/repolock/store"
)

var (
	// errNotDir is returned if there is a file in the place of a directory.
	errNotDir error = syscall.ENOTDIR
	// errFolder is returned if there is a directory in the place of a file. A directory is no object.
	errFolder = errors.New("a directory")
)

// absent reports whether an error means that there is no object, or no directory, at a path.
func absent(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, errNotDir) || errors.Is(err, errFolder)
}

// failed returns the error of a method, or nil. It adds the class of the system's error.
func failed(op, key string, err error) error {
	if err == nil {
		return nil
	}
	if e, ok := errors.AsType[*fault.Error](err); ok && op == "open" && e.Doing != "" {
		err = e.Err // the key is the path already
	}
	switch {
	case isOneOf(err, noSpace):
		err = fmt.Errorf("%w in the repository: %w", store.ErrFull, err)
	case isOneOf(err, unreachable):
		err = store.Unreachable(fmt.Errorf("the server of this file system can't be reached: %w", err))
	case errors.Is(err, fs.ErrPermission):
		err = fault.As(store.ErrPermission, err)
	case op != "open" && errors.Is(err, syscall.ENAMETOOLONG):
		err = fmt.Errorf("%w: too long for this file system: %w", store.ErrInvalidKey, err)
	}
	return &store.Error{Op: op, Key: key, Err: err}
}

// cant returns an error that names a failed action and its path, or nil. Its cause is the system's error without the
// system call and its operands.
func cant(what, path string, err error) error {
	switch e := err.(type) {
	case nil:
		return nil
	case *fs.PathError:
		err = e.Err
	case *os.LinkError:
		err = e.Err
	case *os.SyscallError:
		err = e.Err
	}
	if isOneOf(err, readOnly) {
		return fault.As(errors.Join(store.ErrReadOnly, err), fmt.Errorf("%q is on a file system that is mounted read-only", shorten(path)))
	}
	return fault.While(inability(what, path), err)
}

func inability(what, path string) string { return fmt.Sprintf("can't %s %q", what, shorten(path)) }

// maxPath is the number of bytes to which a message cuts a path.
const maxPath = 300

// shorten returns a path for a message. It leaves out the middle of a path that is too long.
func shorten(path string) string {
	if len(path) <= maxPath {
		return path
	}
	return strings.ToValidUTF8(path[:maxPath/2], "") + "…" + strings.ToValidUTF8(path[len(path)-maxPath/2:], "")
}

func isOneOf(err error, targets []error) bool {
	return slices.ContainsFunc(targets, func(target error) bool { return errors.Is(err, target) })
}
