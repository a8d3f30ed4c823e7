package dir

import (
	"context"
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
	if e, ok := errors.AsType[*fault.Error](err); ok && op == "open" && e.Doing != "" {
		err = e.Err // the key is the place
	}
	switch {
	case isOneOf(err, noSpace):
		err = fmt.Errorf("%w in the repository: %w", store.ErrFull, err)
	case isOneOf(err, unreachable):
		err = store.Unreachable(fmt.Errorf("the server of this file system can't be reached: %w", err))
	case errors.Is(err, fs.ErrPermission): // has the class once: the system's cause can be the same
		says := store.ErrPermission.Error()
		if text := strings.TrimSuffix(err.Error(), says); text != "" {
			says += ": " + strings.TrimSuffix(text, ": ")
		}
		err = classed(errors.New(says), store.ErrPermission, err)
	case op != "open" && errors.Is(err, syscall.ENAMETOOLONG):
		err = fmt.Errorf("%w: too long for this file system: %w", store.ErrInvalidKey, err)
	}
	return &store.Error{Op: op, Key: key, Err: err}
}

// cant returns the error of what can't be done in a place, or nil. Its cause is the system's error without
// the system call and its operands.
func cant(what, path string, err error) error {
	switch e := err.(type) {
	case *fs.PathError:
		err = e.Err
	case *os.LinkError:
		err = e.Err
	case *os.SyscallError:
		err = e.Err
	}
	if isOneOf(err, readOnly) {
		return classed(fmt.Errorf("%q is on a file system that is mounted read-only", shown(path)), store.ErrReadOnly, err)
	}
	return fault.While(inability(what, path), err)
}

func inability(what, path string) string { return fmt.Sprintf("can't %s %q", what, shown(path)) }

// classed returns err as an error of classes that its text doesn't name.
func classed(err error, classes ...error) error { return fault.As(errors.Join(classes...), err) }

// maxShown is the number of bytes of a path that fit into a message.
const maxShown = 300

// shown returns a path for a message, without its middle if it is too long.
func shown(path string) string {
	if len(path) <= maxShown {
		return path
	}
	return strings.ToValidUTF8(path[:maxShown/2], "") + "…" + strings.ToValidUTF8(path[len(path)-maxShown/2:], "")
}

func isOneOf(err error, targets []error) bool {
	return slices.ContainsFunc(targets, func(target error) bool { return errors.Is(err, target) })
}
