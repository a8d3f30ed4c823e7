package store

import (
	"fmt"

	"github.com/repolock/repolock/internal/fault"
)

// Errors that errors.Is finds in the errors of every backend. Each method of [Store]
// documents what they mean for the stored object.
var (
	// ErrNotFound is returned by Get for an object that doesn't exist, and by any method
	// for a bucket or a directory that doesn't exist.
	ErrNotFound error = fault.NotFound
	// ErrPrecondition is returned by a conditional Put whose condition wasn't met.
	// Nothing was written.
	ErrPrecondition error = fault.Precondition
	// ErrConditionUnsupported is returned by a conditional Put to a store that has no
	// such condition, or that might have refused the Put because of the condition. The same
	// Put without the condition shows which it is. Nothing was written.
	ErrConditionUnsupported error = fault.ConditionUnsupported
	// ErrConditionUnsent is an ErrConditionUnsupported of a backend that has no such
	// request. Nothing was sent.
	ErrConditionUnsent error = fault.ConditionUnsent
	// ErrBatchUnsupported is returned by [BatchDeleter] if the server can't delete many
	// objects in one request. The caller must call Delete for each.
	ErrBatchUnsupported error = fault.BatchUnsupported
	// ErrBatchUnsent is an ErrBatchUnsupported of a backend that has no such request, or has
	// found out that the server has none. Nothing was sent.
	ErrBatchUnsent error = fault.BatchUnsent
	// ErrConflict is returned if the store refuses a Put or a deletion because of a concurrent one of
	// the same object (409). Nothing was written. The next try might succeed.
	ErrConflict error = fault.Conflict
	// ErrPermission is returned if the store doesn't permit a request. Nothing was written
	// or deleted.
	ErrPermission error = fault.Permission
	// ErrCredentials is an ErrPermission of a store that doesn't know the credentials,
	// or no longer accepts them. Other permissions wouldn't help.
	ErrCredentials error = fault.Credentials
	// ErrReadOnly is an ErrPermission of a file system that accepts writes from no user. Other
	// permissions wouldn't help.
	ErrReadOnly error = fault.ReadOnly
	// ErrTooLarge is returned by Get for an object larger than its limit.
	ErrTooLarge error = fault.TooLarge
	// ErrInvalidKey is returned for a key that the backend doesn't accept; see CheckKey.
	ErrInvalidKey error = fault.InvalidKey
	// ErrIrregular is returned if a link, a pipe or another special file is in the place of an
	// object, or of a directory above it. Nothing was written.
	ErrIrregular error = fault.Irregular
	// ErrConfig is returned if the user must change a setting: no credentials are found
	// (and no service failed that might have some later), the bucket is in another region,
	// the endpoint has no TLS or isn't an object store, or the clock is so wrong that the
	// server refuses the signature.
	ErrConfig error = fault.Config
	// ErrUnreachable is returned if the store gave no answer: there is no connection, or it
	// broke before an answer began, or no answer began in time. It is also returned for an
	// answer of 502, 503 or 504 that doesn't have the form of the store's own, and if a proxy
	// can't open the connection. Any other answer shows that the store was reached, even
	// one that can't be understood. In doubt a backend MUST NOT return it, because it can
	// make a program run without a lock. A Put might have been applied, or might be later.
	ErrUnreachable error = fault.Unreachable
	// ErrNoHost is returned if the name service doesn't know the endpoint's name: the name is
	// wrong, or belongs to another network than this machine's.
	ErrNoHost error = fault.NoHost
	// ErrFull is returned if no space is left, or a quota is used up.
	ErrFull error = fault.Full
	// ErrListing is returned if a listing can't be relied on, because it isn't in order or has no
	// end. The next listing might be right.
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

// Permanent reports whether the same request would fail again for the same reason.
func Permanent(err error) bool { return fault.Permanent(err) }

// Unreachable returns err as an [ErrUnreachable], with the same text.
func Unreachable(err error) error { return fault.As(fault.Unreachable, err) }
