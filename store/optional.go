package store

import "context"

// What follows are abilities that not every backend has. The lock needs none of
// them.

// ConditionalDeleter is implemented by backends that can send a condition with a
// deletion. Whether the server heeds it isn't known: some accept and ignore it.
type ConditionalDeleter interface {
	// DeleteIfMatch removes the object if it has this ETag. If it has another
	// the answer is ErrPrecondition; if there is none, nil or ErrPrecondition;
	// if the server has no such condition, ErrConditionUnsupported, and nothing
	// was removed.
	DeleteIfMatch(ctx context.Context, key, etag string) error
}

// DeleteIfMatch is s.DeleteIfMatch, or ErrConditionUnsent if s is no
// [ConditionalDeleter]: for decorators.
func DeleteIfMatch(ctx context.Context, s Store, key, etag string) error {
	if d, ok := s.(ConditionalDeleter); ok {
		return d.DeleteIfMatch(ctx, key, etag)
	}
	return &Error{Op: "delete", Key: key, Err: ErrConditionUnsent}
}

// Answerer is implemented by backends whose operations take several requests, one of which may
// be answered and the next not.
type Answerer interface {
	// Answered reports whether any request so far was, other than that the store is down.
	Answered() bool
}

// Describer is implemented by backends whose repositories differ in what the
// server was told to do with them.
type Describer interface {
	// Describe asks the server. A single thing that it refuses to tell is
	// Unknown and no error.
	Describe(ctx context.Context) (Description, error)
}

// Description is what the server tells of a repository.
type Description struct {
	// Server is what it calls itself, "" if it doesn't say.
	Server string
	// Versioning: what is overwritten or deleted is kept as a version.
	Versioning Answer
	// ObjectLock: versions may be kept from being deleted.
	ObjectLock Answer
}

// Answer is one to a question that the server may refuse.
type Answer int

const (
	Unknown Answer = iota
	No
	Yes
)

// String is the answer in a word.
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
