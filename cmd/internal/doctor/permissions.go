package doctor

import (
	"context"
	"errors"
	"fmt"

	"github.com/repolock/repolock/store"
)

// permissions does once what a lock does, and reports each refusal. Without leave to write
// there is nothing to read, overwrite or delete, but a refusal shows all the same.
func (x *exam) permissions(ctx context.Context) error {
	_, err := x.listAll(ctx, 0, x.scratch)
	if err := x.permission(List, "objects may be listed", err); err != nil {
		return err
	}
	key := x.scratch + "permissions"
	_, err = x.put(ctx, key, "first")
	if err := x.permission(Write, "objects may be written", err); err != nil {
		return err
	}
	if err != nil {
		return x.permissionsUnwritten(ctx, key)
	}
	err = x.reads(ctx, key, "first")
	if err := x.permission(Read, "objects may be read", err); err != nil {
		return err
	}
	readable := err == nil
	_, err = x.put(ctx, key, "second")
	if err == nil && readable {
		err = x.reads(ctx, key, "second")
	}
	if err := x.permission(Overwrite, "objects may be overwritten", err); err != nil {
		return err
	}
	overwritten := err == nil
	err = x.remove(ctx, key)
	if err == nil && readable {
		err = x.gone(ctx, key)
	}
	if overwritten && refused(err) {
		x.add(Check{Name: Delete, Result: Warn, Refused: true, Detail: err.Error() + "; released locks are emptied instead"})
		return nil
	}
	return x.permission(Delete, "objects may be deleted", err)
}

// permissionsUnwritten tries the rest without an object.
func (x *exam) permissionsUnwritten(ctx context.Context, key string) error {
	_, err := x.get(ctx, 0, key)
	if errors.Is(err, store.ErrNotFound) {
		err = nil
	}
	if refused(err) && len(x.lacking(List)) > 0 {
		// Some stores hide whether there is an object from a client that may not list.
		x.add(Check{Name: Read, Result: Unknown, Detail: err.Error() + "; perhaps only because there is nothing to be read"})
	} else if err := x.permission(Read, "objects may be read", err); err != nil {
		return err
	}
	x.add(Check{Name: Overwrite, Result: Unknown, Detail: "there is nothing to be overwritten"})
	if err := x.remove(ctx, key); err != nil {
		return x.permission(Delete, "", err)
	}
	x.add(Check{Name: Delete, Result: Unknown, Detail: "there is nothing to be deleted"})
	return nil
}

// errWrong is returned when the store carried a request out wrongly.
var errWrong = errors.New("the store doesn't do what it says")

// reads reads a body back.
func (x *exam) reads(ctx context.Context, key, want string) error {
	switch c, err := x.get(ctx, 1, key); {
	case errors.Is(err, store.ErrNotFound):
		return fmt.Errorf("%w: %q was written, and isn't there", errWrong, key)
	case err != nil:
		return err
	case c.body != want:
		return fmt.Errorf("%w: %q has another body than was written", errWrong, key)
	}
	return nil
}

// gone checks that an object was deleted.
func (x *exam) gone(ctx context.Context, key string) error {
	switch _, err := x.get(ctx, 1, key); {
	case err == nil:
		return fmt.Errorf("%w: %q was deleted, and is still there", errWrong, key)
	case errors.Is(err, store.ErrNotFound):
		return nil
	default:
		return err
	}
}

// permission reports a permission that was tried. It returns an error that says nothing about
// the permission.
func (x *exam) permission(name, granted string, err error) error {
	switch {
	case err == nil:
		x.add(Check{Name: name, Result: OK, Detail: granted})
	case settled(err):
		x.add(Check{Name: name, Result: Fail, Refused: refused(err), Detail: err.Error()})
	default:
		return err
	}
	return nil
}

func refused(err error) bool { return errors.Is(err, store.ErrPermission) }

// settled reports whether an error says what the store does, and not that it can't be reached.
func settled(err error) bool {
	return refused(err) || errors.Is(err, errWrong) || errors.Is(err, store.ErrInvalidKey) || errors.Is(err, store.ErrTooLarge)
}
