package store

import (
	"context"
	"errors"
	"strings"
)

// The interfaces below are optional. The lock needs none of them.

// ConditionalDeleter is implemented by backends that can send a condition with a
// deletion. Some servers accept the condition and ignore it.
type ConditionalDeleter interface {
	// DeleteIfMatch removes the object if it has this ETag. It returns ErrPrecondition
	// if the object has another ETag, nil or ErrPrecondition if there is no object, and
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

// MaxBatch is the largest number of objects that one request can delete.
const MaxBatch = 1000

// BatchDeleter is implemented by backends that can delete many objects in one request.
type BatchDeleter interface {
	// DeleteAll deletes the objects under keys, in one request. There are at most MaxBatch
	// keys, each of them once. It reports for each whether there certainly is no such object
	// now. If not, the server has refused or ignored this key, or has no such request, and
	// the caller must call Delete for it.
	//
	// The error is [ErrBatchUnsupported] if the server has no such request. Any other error
	// means for each object the same as after Delete. With an error, DeleteAll reports no
	// object as deleted.
	DeleteAll(ctx context.Context, keys []string) (deleted []bool, err error)
}

// DeleteAll calls s.DeleteAll, and returns [ErrBatchUnsent] if s is no [BatchDeleter]. It is
// for decorators.
func DeleteAll(ctx context.Context, s Store, keys []string) ([]bool, error) {
	if d, ok := s.(BatchDeleter); ok {
		return d.DeleteAll(ctx, keys)
	}
	return make([]bool, len(keys)), &Error{Op: "delete", Key: strings.Join(keys[:min(1, len(keys))], ""), Err: ErrBatchUnsent}
}

// Watcher is implemented by backends that can report deletions without requests.
type Watcher interface {
	// Watch returns a channel that receives a value soon after an object under the prefix
	// was deleted, by any process, until ctx ends. The channel has room for one value, which
	// stands for any number of deletions. It is never closed.
	//
	// A value is only a hint. A deletion might give none, as before Watch has returned, or in
	// a new folder. A value might come although nothing was deleted.
	//
	// After an error there are no hints. After errors.ErrUnsupported there never are.
	Watch(ctx context.Context, prefix string) (<-chan struct{}, error)
}

// Watch calls s.Watch, and returns errors.ErrUnsupported if s is no [Watcher]. It is for
// decorators.
func Watch(ctx context.Context, s Store, prefix string) (<-chan struct{}, error) {
	if w, ok := s.(Watcher); ok {
		return w.Watch(ctx, prefix)
	}
	return nil, &Error{Op: "watch", Key: prefix, Err: errors.ErrUnsupported}
}

// Answerer is implemented by backends whose methods can send several requests, so that a method
// can fail without an answer after an earlier request was answered.
type Answerer interface {
	// Answered reports whether any request so far was answered, but not by a server that
	// is down. A store that has answered isn't [ErrUnreachable].
	Answered() bool
}

// Describer is implemented by backends that can read a repository's settings.
type Describer interface {
	// Describe asks the server, in a few requests. If the server refuses to show a
	// setting, that is Unknown, and no error.
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
