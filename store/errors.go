package store

import (
	"fmt"

	"github.com/repolock/repolock/internal/fault"
)

// Errors that errors.Is finds in the errors of every backend. Each method of [Store]
// documents what they mean for what was stored.
var (
	// ErrNotFound is returned by Get for an object that doesn't exist, and by any method
	// for a bucket or a directory that doesn't exist.
	ErrNotFound error = fault.NotFound
	// ErrPrecondition is returned by a conditional Put whose condition wasn't met.
	// Nothing was written.
	ErrPrecondition error = fault.Precondition
	// ErrConditionUnsupported is returned by a conditional Put to a store that has no
	// such condition, or that refuses the Put in a way that can be because of the condition: the
	// same Put without it shows that. Nothing was written.
	ErrConditionUnsupported error = fault.ConditionUnsupported
	// ErrConditionUnsent is an ErrConditionUnsupported of a backend that has no such
	// request: nothing was sent.
	ErrConditionUnsent error = fault.ConditionUnsent
	// ErrBatchUnsupported is returned by [BatchDeleter] if the server can't delete many
	// objects in one request: Delete must delete each of them.
	ErrBatchUnsupported error = fault.BatchUnsupported
	// ErrBatchUnsent is an ErrBatchUnsupported of a backend that has no such request, or has
	// found out that the server has none: nothing was sent.
	ErrBatchUnsent error = fault.BatchUnsent
	// ErrConflict is returned by a Put or a deletion that the store refuses because of another one
	// of the same object (409). Nothing was written. The next try might be taken.
	ErrConflict error = fault.Conflict
	// ErrPermission is returned if the store refuses the sender of a request. Nothing
	// was written or deleted.
	ErrPermission error = fault.Permission
	// ErrCredentials is an ErrPermission of a store that doesn't know the credentials,
	// or no longer takes them: other permissions wouldn't help.
	ErrCredentials error = fault.Credentials
	// ErrReadOnly is an ErrPermission of a file system that takes no writes from any user: other
	// permissions wouldn't help.
	ErrReadOnly error = fault.ReadOnly
	// ErrTooLarge is returned by Get for an object larger than its limit.
	ErrTooLarge error = fault.TooLarge
	// ErrInvalidKey is returned for a key that no backend takes; see CheckKey.
	ErrInvalidKey error = fault.InvalidKey
	// ErrIrregular is returned if a link, a pipe or the like is in the place of an object,
	// or of a directory above it. Nothing was written.
	ErrIrregular error = fault.Irregular
	// ErrConfig is returned if the user must change a setting: no credentials are found
	// (and no service failed that might have some later), the bucket is in another region,
	// the endpoint has no TLS or isn't an object store, or the clock is so wrong that the
	// server refuses the signature.
	ErrConfig error = fault.Config
	// ErrUnreachable is returned if the store said nothing: there is no connection, or it
	// broke before an answer began, or no answer began in time. It is also returned if an
	// answer says that the store is down or overloaded (502, 503, 504), not in the store's
	// own words, or if a proxy can't open the connection. Any other answer
	// shows that the store was reached, even one that can't be understood. A backend MUST
	// NOT return it in doubt: a program can be set to run without a lock because of it.
	// A Put might have been carried out, or might be later.
	ErrUnreachable error = fault.Unreachable
	// ErrNoHost is returned if the name service doesn't know the endpoint's name: it is
	// wrong, or belongs to a network that this machine isn't on.
	ErrNoHost error = fault.NoHost
	// ErrFull is returned if there is no space left, or a quota is used up.
	ErrFull error = fault.Full
	// ErrListing is returned if a listing can't be relied on: it has no order, or no end.
	// The next one might be good.
	ErrListing error = fault.Listing
	// ErrURL is returned for a repository URL that can't be understood.
	ErrURL error = fault.URL
)

// Error is the error of every method of a backend: the request that failed, its key or
// prefix, and the reason. It is one line, without credentials.
type Error struct {
	Op  string // "put", "get", "list", "delete", "open"
	Key string
	Err error
}

func (e *Error) Error() string { return fmt.Sprintf("%s %q: %v", e.Op, e.Key, e.Err) }

// Unwrap returns the reason, for errors.Is and errors.As.
func (e *Error) Unwrap() error { return e.Err }

// Permanent reports whether the same request would fail again for the same reason, so
// that repeating it is useless.
func Permanent(err error) bool { return fault.Permanent(err) }

// Unreachable returns an error with the text of err that is an [ErrUnreachable].
func Unreachable(err error) error { return fault.As(fault.Unreachable, err) }
