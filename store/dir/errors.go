package dir

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
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
	switch {
	case err == nil:
		return nil
	case isOneOf(err, noSpace):
		err = fmt.Errorf("%w in the repository: %w", store.ErrFull, err)
	case isOneOf(err, unreachable):
		err = store.Unreachable(fmt.Errorf("the server of this file system can't be reached: %w", err))
	case op == "open" && errors.Is(err, syscall.EACCES): // the system's text repeats the operation, the path and the class
		err = classed{store.ErrPermission, err}
	case errors.Is(err, fs.ErrPermission), isOneOf(err, readOnly):
		err = fmt.Errorf("%w: %w", store.ErrPermission, err)
	case errors.Is(err, syscall.ENAMETOOLONG):
		err = fmt.Errorf("%w: too long for this file system: %w", store.ErrInvalidKey, err)
	}
	return &store.Error{Op: op, Key: key, Err: err}
}

// classed is an error of a class that its text doesn't name.
type classed struct {
	error
	class error
}

func (e classed) Unwrap() []error { return []error{e.error, e.class} }

func isOneOf(err error, targets []error) bool {
	return slices.ContainsFunc(targets, func(target error) bool { return errors.Is(err, target) })
}
