package store

import "context"

// The interfaces below are optional. The lock needs none of them.

// ConditionalDeleter is implemented by backends that can send a condition with a
// deletion. Some servers accept the condition and ignore it.
type ConditionalDeleter interface {
	// DeleteIfMatch removes the object if it has this ETag. It returns ErrPrecondition
	// if the object has another, nil or ErrPrecondition if there is no object, and
	// ErrConditionUnsupported if the server has no such condition. After both errors
	// nothing was removed. It is one request.
	DeleteIfMatch(ctx context.Context, key, etag string) error
}

// DeleteIfMatch calls s.DeleteIfMatch, and returns ErrConditionUnsent if s is no
// [ConditionalDeleter]. It is for decorators.
func DeleteIfMatch(ctx context.Context, s Store, key, etag string) error {
	if d, ok := s.(ConditionalDeleter); ok {
		return d.DeleteIfMatch(ctx, key, etag)
	}
	return &Error{Op: "delete", Key: key, Err: ErrConditionUnsent}
}

// Answerer is implemented by backends whose methods can send several requests, of which one
// can be answered and the next not.
type Answerer interface {
	// Answered reports whether any request so far was answered, other than by a server
	// that is down. A store that has answered isn't [ErrUnreachable].
	Answered() bool
}

// Describer is implemented by backends that can read a repository's settings.
type Describer interface {
	// Describe asks the server, in a few requests. A setting that the server refuses
	// to show is Unknown, which is no error.
	Describe(ctx context.Context) (Description, error)
}

// Description has the settings of a repository.
type Description struct {
	// Server is the server's name for itself, "" if it has none.
	Server string
	// Versioning is Yes if overwritten and deleted objects are kept as versions.
	Versioning Answer
	// ObjectLock is Yes if versions can be protected from deletion.
	ObjectLock Answer
}

// Answer is the answer to a question that the server can refuse.
type Answer int

const (
	Unknown Answer = iota
	No
	Yes
)

// String returns "yes", "no" or "unknown".
func (a Answer) String() string {
	switch a {
	case No:
		return "no"
	case Yes:
		return "yes"
	default:
		return "unknown"
	}
}
