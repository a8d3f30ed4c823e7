package dir

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"
	"syscall"

	"github.com/repolock/repolock/store"
)

// check checks the context and the key of a method.
func check(ctx context.Context, key string) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	return checkKey(key)
}

// failed returns an error of the system as one of package store.
func failed(op, key string, err error) error {
	if err == nil {
		return nil
	}
	placed, ok := errors.AsType[*placeError](err)
	switch {
	case op == "open" && ok: // the key is the place
		err = classed{placed.cause(), []error{err}}
	case !ok:
		placed = &placeError{err: err}
	}
	switch {
	case isOneOf(err, noSpace):
		err = fmt.Errorf("%w in the repository: %w", store.ErrFull, err)
	case isOneOf(err, unreachable):
		err = store.Unreachable(fmt.Errorf("the server of this file system can't be reached: %w", err))
	case isOneOf(err, readOnly):
		err = classed{fmt.Errorf("%q is on a file system that is mounted read-only", shown(cmp.Or(placed.path, key))), []error{store.ErrReadOnly, err}}
	case errors.Is(err, fs.ErrPermission):
		err = denied(err)
	case op != "open" && errors.Is(err, syscall.ENAMETOOLONG):
		err = fmt.Errorf("%w: too long for this file system: %w", store.ErrInvalidKey, err)
	}
	return &store.Error{Op: op, Key: key, Err: err}
}

// denied returns an error of permission, whose text has the class once: the system's cause can be the same.
func denied(err error) error {
	says := store.ErrPermission.Error()
	if text := strings.TrimSuffix(err.Error(), says); text != "" {
		says += ": " + strings.TrimSuffix(text, ": ")
	}
	return classed{errors.New(says), []error{store.ErrPermission, err}}
}

// placeError is an error of the system about a directory or a file of a repository.
type placeError struct {
	what string // what can't be done
	path string // in full
	err  error
}

// cant returns the error of what can't be done in a place, or nil.
func cant(what, path string, err error) error {
	if err == nil {
		return nil
	}
	return &placeError{what, path, err}
}

func (e *placeError) Error() string {
	return fmt.Sprintf("can't %s %q: %v", e.what, shown(e.path), e.cause())
}

func (e *placeError) Unwrap() error { return e.err }

// cause returns the system's error without the system call and its operands.
func (e *placeError) cause() error {
	switch err := e.err.(type) {
	case *fs.PathError:
		return err.Err
	case *os.LinkError:
		return err.Err
	case *os.SyscallError:
		return err.Err
	default:
		return err
	}
}

// maxShown is the number of bytes of a path that fit into a message.
const maxShown = 300

// shown returns a path for a message, without its middle if it is too long.
func shown(path string) string {
	if len(path) <= maxShown {
		return path
	}
	return strings.ToValidUTF8(path[:maxShown/2], "") + "…" + strings.ToValidUTF8(path[len(path)-maxShown/2:], "")
}

// classed is an error of classes that its text doesn't name.
type classed struct {
	error
	classes []error
}

func (e classed) Unwrap() []error { return append([]error{e.error}, e.classes...) }

func isOneOf(err error, targets []error) bool {
	return slices.ContainsFunc(targets, func(target error) bool { return errors.Is(err, target) })
}
