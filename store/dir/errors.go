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

// check is what every method that has a key does first.
func check(ctx context.Context, key string) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	return checkKey(key)
}

// failed makes the errors of the system those of a store.
func failed(op, key string, err error) error {
	is := func(target error) bool { return errors.Is(err, target) }
	switch {
	case slices.ContainsFunc(noSpace, is):
		err = fmt.Errorf("%w in the repository: %w", store.ErrFull, err)
	case slices.ContainsFunc(unreachable, is):
		err = store.Unreachable(fmt.Errorf("the server of this file system can't be reached: %w", err))
	case is(fs.ErrPermission) || slices.ContainsFunc(readOnly, is):
		err = fmt.Errorf("%w: %w", store.ErrPermission, err)
	case is(syscall.ENAMETOOLONG):
		err = fmt.Errorf("%w: too long for this file system: %w", store.ErrInvalidKey, err)
	}
	return &store.Error{Op: op, Key: key, Err: err}
}
