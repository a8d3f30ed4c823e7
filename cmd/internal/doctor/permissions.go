package doctor

import (
	"context"
	"errors"
	"fmt"

	"github.com/repolock/repolock/internal/fault"
	"github.com/repolock/repolock/store"
)

// The checks of permissions send each request of a lock once. Without the permission to write, there is no object to
// read, overwrite or delete, but the store can still refuse the request.

func (x *exam) list(ctx context.Context) (Check, error) {
	_, err := x.listAll(ctx, 0, x.scratch)
	return passed("objects may be listed"), err
}

// permitted is the key of these checks' object, below the scratch prefix.
const permitted = "permissions"

func (x *exam) write(ctx context.Context) (Check, error) {
	_, err := x.put(ctx, x.scratch+permitted, "first")
	return passed("objects may be written"), err
}

func (x *exam) read(ctx context.Context) (Check, error) {
	if x.granted(Write) {
		return passed("objects may be read"), x.shows(ctx, "first")
	}
	_, err := x.get(ctx, 0, x.scratch+permitted)
	switch {
	case errors.Is(err, store.ErrNotFound):
		err = nil
	case refused(err) && !x.granted(List):
		// Some stores don't say whether an object exists if the client may not list.
		return Check{Result: Unknown, Detail: err.Error() + "; perhaps only because there is no object to read"}, nil
	}
	return passed("objects may be read"), err
}

func (x *exam) overwrite(ctx context.Context) (Check, error) {
	if !x.granted(Write) {
		return Check{Result: Unknown, Detail: "there is no object to overwrite"}, nil
	}
	_, err := x.put(ctx, x.scratch+permitted, "second")
	if err == nil && x.granted(Read) {
		err = x.shows(ctx, "second")
	}
	return passed("objects may be overwritten"), err
}

func (x *exam) delete(ctx context.Context) (Check, error) {
	err := x.remove(ctx, x.writer(), x.scratch+permitted)
	switch {
	case err == nil && !x.granted(Write):
		return Check{Result: Unknown, Detail: "there is no object to delete"}, nil
	case err == nil && x.granted(Read):
		err = x.shows(ctx, "")
	case refused(err) && x.granted(Overwrite):
		return Check{Result: Warn, Refused: true, Detail: err.Error() + "; released locks are emptied instead"}, nil
	}
	return passed("objects may be deleted"), err
}

// errWrong is returned when the store has confirmed a request and not carried it out.
var errWrong = errors.New("the store confirmed a request that it didn't carry out")

// shows checks that the object has this body, or is gone if want is "".
func (x *exam) shows(ctx context.Context, want string) error {
	key := x.scratch + permitted
	c, err := x.get(ctx, 1, key)
	switch {
	case err != nil && !errors.Is(err, store.ErrNotFound):
		return err
	case err == nil && want == "":
		return fmt.Errorf("%w: %q was deleted, and is still there", errWrong, key)
	case err != nil && want != "":
		return fmt.Errorf("%w: %q was written, and isn't there", errWrong, key)
	case c.body != want:
		return fmt.Errorf("%w: %q has another body than was written", errWrong, key)
	}
	return nil
}

func refused(err error) bool { return errors.Is(err, store.ErrPermission) }

// settled reports whether an error is a result of the check, and not a lack of an answer.
func settled(err error) bool {
	return refused(err) || errors.Is(err, errWrong) || errors.Is(err, store.ErrInvalidKey) || errors.Is(err, store.ErrTooLarge)
}

// versioning asks the server whether it keeps old versions. Not every server answers.
func (x *exam) versioning(ctx context.Context) (Check, error) {
	if d, ok := x.writer().(store.Describer); ok {
		var err error
		x.is, err = repeat(ctx, x, "describe", "", d.Describe)
		if err != nil && !settled(err) && !errors.Is(err, store.ErrConditionUnsupported) {
			return Check{}, fault.Errorf("asking the store about itself: %w", err)
		}
	}
	x.report.Server = x.is.Server
	return described(x.is.Versioning, "on: an overwritten or deleted object stays as a version, until a rule of the bucket or its writer removes it"), nil
}

func (x *exam) objectLock(context.Context) (Check, error) {
	return described(x.is.ObjectLock, "on: the server might refuse to delete old versions; locks work all the same"), nil
}

func described(a store.Answer, yes string) Check {
	switch a {
	case store.Yes:
		return passed(yes)
	case store.Unknown:
		return Check{Result: Unknown, Detail: "the store doesn't say"}
	default:
		return passed("off")
	}
}
