package store

import (
	"errors"
	"fmt"
)

// Errors that errors.Is finds through every backend. Each method of [Store]
// says what they mean for what was stored.
var (
	// ErrNotFound is returned by Get for an object that isn't there, and by any
	// method for a repository (a bucket, a directory) that isn't there.
	ErrNotFound = errors.New("not found")
	// ErrPrecondition is returned by a conditional Put whose condition wasn't
	// met.
	ErrPrecondition = errors.New("precondition failed")
	// ErrConditionUnsupported is returned by a conditional Put to a store that
	// has no such condition.
	ErrConditionUnsupported = errors.New("conditional put not supported")
	// ErrConditionUnsent is an ErrConditionUnsupported of a backend that has no such request:
	// nothing was sent.
	ErrConditionUnsent = fmt.Errorf("%w", ErrConditionUnsupported)
	// ErrPermission is returned when the store refused the request for who sent
	// it.
	ErrPermission = errors.New("permission denied")
	// ErrCredentials is an ErrPermission of a store that doesn't know the credentials, or no
	// longer takes them: other permissions wouldn't help.
	ErrCredentials = fmt.Errorf("%w", ErrPermission)
	// ErrTooLarge is returned by Get for an object larger than its limit.
	ErrTooLarge = errors.New("object too large")
	// ErrInvalidKey is returned for a key that no backend takes; see CheckKey.
	ErrInvalidKey = errors.New("invalid key")
	// ErrIrregular is returned when what is in the place of an object, or of a directory
	// that it must be in, is neither: a link, a pipe. Nothing was written.
	ErrIrregular = errors.New("something else is in the place of an object")
	// ErrConfig is returned where nothing but a change of what the user has set
	// helps: no credentials are found, the bucket is in another region, the
	// endpoint speaks no TLS, or isn't an object store at all, a clock is so
	// wrong that the server refuses what it signs.
	ErrConfig = errors.New("wrong configuration")
	// ErrUnreachable is returned where the store has said nothing: no connection is to be
	// had, or it broke before an answer came, or none came in time; and where who answers
	// says that the store is down or overloaded (502, 503, 504). Whatever else a store answers
	// isn't that, whether it can be understood or not: it was reached.
	ErrUnreachable = errors.New("store can't be reached")
	// ErrNoHost is returned where the endpoint's name isn't known to the name service: it is
	// wrong, or known only on a network that this machine isn't on.
	ErrNoHost = errors.New("no such host")
	// ErrFull is returned where nothing can be written for want of space, or because a
	// quota is used up.
	ErrFull = errors.New("no space left")
	// ErrListing is returned where a listing can't be relied on: its pages are in no order, or it
	// has no end. It might be whole the next time.
	ErrListing = errors.New("a listing can't be relied on")
	// ErrURL is returned for a repository URL that can't be understood.
	ErrURL = errors.New("invalid repository URL")
)

// Error is what backends return: the request that failed, the key or prefix
// that it was for, and why.
type Error struct {
	Op  string // "put", "get", "list", "delete", "open"
	Key string
	Err error
}

func (e *Error) Error() string { return fmt.Sprintf("%s %q: %v", e.Op, e.Key, e.Err) }

// Unwrap gives the reason, for errors.Is and errors.As.
func (e *Error) Unwrap() error { return e.Err }

// Unreachable marks an error as [ErrUnreachable]. Its text stays.
func Unreachable(err error) error { return unreachable{err} }

type unreachable struct{ error }

func (unreachable) Is(target error) bool { return target == ErrUnreachable }
func (e unreachable) Unwrap() error      { return e.error }

// Permanent reports whether the same request would fail again for the same
// reason, so that repeating it is of no use.
func Permanent(err error) bool {
	for _, target := range []error{
		ErrNotFound, ErrPrecondition, ErrConditionUnsupported, ErrPermission, ErrTooLarge, ErrInvalidKey, ErrIrregular, ErrConfig, ErrURL,
	} {
		if errors.Is(err, target) {
			return true
		}
	}
	return false
}
