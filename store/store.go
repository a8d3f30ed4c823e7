// Package store is the interface of a repository's object store. It has only the four requests that a lock needs, and
// knows nothing about locks.
//
// Each backend is a package of its own: store/dir, store/sftp, store/s3, store/minio, store/b2 and store/memory. In
// each, Open takes a context and a path or a URL, and finds credentials and settings as the package comment describes.
// New takes the program's own client or settings instead, and makes no request. Package store/open opens the backend of
// a URL. The suite store/storetest checks the rules below for every backend, also for one in another module; see
// examples/backend. A decorator around the interface can add retries, counts or faults.
//
// # Cost
//
// Put, Get, List and Delete are one request each, unless a backend's package comment differs. Properties makes no
// request, but store/sftp waits for its first connection.
package store

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/repolock/repolock/internal/fault"
)

// Store is an object store. All methods can be called concurrently, by any number of
// goroutines, and by any number of processes on the same repository.
//
// Keys are UTF-8, separated by slashes, without a leading slash, and without
// empty, "." or ".." elements; see [CheckKey].
//
// The lock's safety depends on one guarantee: if a List starts after the answer to a Put, in any
// process, it MUST show that object until the object is deleted. If an object is overwritten
// while a List runs, the List MUST show its old or its new form. A backend can rely on it that an
// object isn't overwritten twice while a List runs, and MUST then say so. The refreshes of a lock
// that are due are at least 4.5 s apart, but a caller can refresh a lock at any time.
//
// The backend checks keys: each method but List MUST return [ErrInvalidKey] for a key that
// CheckKey refuses, and send nothing. List accepts any prefix, because a prefix is no key.
//
// Every method MUST return soon after its context has ended. Each method documents what its
// errors mean for the stored object. Errors are [*Error], in one line, without credentials;
// errors.Is finds the errors of this package in them. After an error that isn't [Permanent]
// the lock sends the request again.
//
// A backend doesn't repeat a request, and the retries of its client MUST be off. The lock
// repeats requests itself, within its remaining time. If a client sent a Put again, the store
// could apply it after a later Put of the same key.
type Store interface {
	// Put stores body under key, whole or not at all: no reader ever sees a
	// part of it.
	//
	// With a condition (see [PutOptions]) the check and the write MUST be one
	// atomic step if the backend declares the condition as [Kept]. Put returns
	// [ErrPrecondition] if the condition isn't met. It returns
	// [ErrConditionUnsupported] if the backend can't send the condition, and then
	// MUST NOT write without it.
	//
	// After ErrPrecondition, ErrConditionUnsupported, ErrPermission or
	// ErrNotFound this request has written nothing, if the store's answer is right.
	// After any other error, a context's end included, the body might be written
	// already, or later, or never.
	Put(ctx context.Context, key string, body []byte, opts PutOptions) (Object, error)

	// Get reads an object of at most limit bytes. It returns [ErrTooLarge] for a
	// larger object, and reads no more than about limit bytes of it. It returns
	// [ErrNotFound] if there is no object.
	Get(ctx context.Context, key string, limit int64) ([]byte, Object, error)

	// List returns one page of the objects whose key begins with prefix, in byte
	// order of the keys. It is exactly one request. The cursor is "" for the first
	// page, and Page.Next of the page before for any other. A later page needn't show
	// an object that was first put after the first page was requested. A page that
	// isn't the last can have few objects, or none. But each page begins after the
	// last key of all pages before, and has a new cursor. If no key has the prefix, the
	// page is empty, and there is no error.
	//
	// If the store doesn't permit the client to read a folder under the prefix, List
	// returns ErrPermission, because the folder might have any object. Only for a folder
	// that the context [Skips] it MAY show the folder's key instead, which ends with a
	// slash, as an object of size -1. After any other error of a folder List MUST fail.
	//
	// The larger the pages, the fewer requests a lock needs. See [Finite].
	List(ctx context.Context, prefix, cursor string) (Page, error)

	// Delete removes an object. It returns no error if there is none. After ErrPermission nothing was removed. After
	// any other error the object might be removed already, or later, or never. If List shows a key that isn't valid, or
	// an empty folder (see [Page]), Delete removes it or returns ErrInvalidKey.
	Delete(ctx context.Context, key string) error

	// Properties returns the properties that the backend declares. It makes no request, and always returns the same
	// properties.
	Properties() Properties
}

// PutOptions are the conditions of a Put. The zero value is an unconditional Put. A caller
// MUST NOT set both IfAbsent and IfMatch: no object meets both.
type PutOptions struct {
	// IfAbsent stores only if there is no object under the key.
	IfAbsent bool
	// IfMatch stores only if the object under the key has this ETag. If there is
	// no object, Put returns ErrPrecondition and writes nothing, because it must not
	// restore an object that another process has deleted. Some servers that claim the
	// condition create the object (minio/minio#21526).
	IfMatch string
	// Replaces, in a Put without a condition, is the ETag of the object that the
	// caller has just seen under the key. A backend that has no conditions and keeps
	// versions MUST check after the write which version was the newest one before. If
	// it has this ETag, the backend removes that version. If not, the backend removes
	// the version that it wrote, and returns ErrPrecondition. So a Put doesn't undo a
	// deletion that came between the caller's look and the Put. Other backends ignore
	// Replaces.
	Replaces string
	// Durable makes Put return only when the body would survive a crash of the store's machine. Stores that always do
	// so ignore it.
	Durable bool
}

// Object describes a stored object.
type Object struct {
	// Key is the object's key, without the prefix of the repository.
	Key string
	// ETag is opaque, and changes whenever the body changes. It can depend on the body alone, so that the same body has
	// the same ETag again. It is "" if the response has no ETag.
	ETag string
	// Size is the size of the body in bytes. It is -1 for an entry without a size, which Get refuses.
	Size int64
	// ModTime is when the object was written, on the store's clock, rounded down to the store's precision. It is zero
	// if the response doesn't have it.
	ModTime time.Time
	// Now is the store's clock when it answered a Put: see Page.Now. It is zero if the response doesn't have it. Only
	// Put sets it.
	Now time.Time
}

// Page is a part of a listing.
type Page struct {
	// Objects are in byte order of their keys.
	Objects []Object
	// Next is the cursor of the next page, or "" if this page is the last.
	Next string
	// Folders are the empty directories under the prefix, if the store has directories. Each ends with a slash. A Put
	// under way might have made one.
	Folders []string
	// Bodies are the bodies of some of the objects, by key, if the store had to read them for the page. Each is of the
	// version in Objects, and is what Get would return. The caller MUST NOT modify them.
	Bodies map[string][]byte
	// Now is the store's clock when it answered, or zero if the response doesn't have it. A backend might not know the
	// clock before its first Put, because a client that only lists must write nothing. Now MUST be a reading of the
	// clock that stamps ModTime, and MUST NOT be later than that clock when List returns.
	Now time.Time
}

// Properties are the properties that a backend declares.
type Properties struct {
	// Name is the backend's name for messages: "dir", "memory".
	Name string
	// IfAbsent and IfMatch are how far the lock can rely on the conditions of a Put.
	IfAbsent, IfMatch Condition
	// DeleteIfMatch is how far the lock can rely on the condition of a [ConditionalDeleter]. A deletion whose condition
	// is Kept needs no look before it.
	DeleteIfMatch Condition
	// StoreClock is set if a single clock, which no client sets, stamps ModTime and Page.Now. On many network file
	// systems the clock of the writing client stamps them.
	StoreClock bool
	// MachineClock is set if that clock is the wall clock of this process's machine, as on a local disk. Then a step of
	// the wall clock changes both, so neither can check the other.
	MachineClock bool
	// PutCreates is set if a Put might create the bucket of the URL, as on some S3 servers. Then the lock checks that
	// the bucket exists before its first Put, because the name might be misspelled.
	PutCreates bool
}

// Condition is how far the lock can rely on a kind of condition.
type Condition int

const (
	// Unsupported: a request with the condition returns ErrConditionUnsupported.
	Unsupported Condition = iota
	// Claimed: the backend sends the condition, but the server might accept and ignore it.
	Claimed
	// Kept: the server checks the condition and makes the change in one atomic step.
	Kept
)

// String returns "claimed", "kept" or "unsupported".
func (c Condition) String() string {
	switch c {
	case Claimed:
		return "claimed"
	case Kept:
		return "kept"
	default:
		return "unsupported"
	}
}

// skips is the key of the function of Skipping in a context.
type skips struct{}

// Skipping returns a context for List, whose caller ignores all keys below some folders. If the client isn't permitted
// to read such a folder, the listing needn't fail. The key of a folder ends with a slash.
func Skipping(ctx context.Context, ignored func(folder string) bool) context.Context {
	return context.WithValue(ctx, skips{}, ignored)
}

// Skips reports whether the caller of List ignores all keys below a folder: see [Skipping].
func Skips(ctx context.Context, folder string) bool {
	ignored, ok := ctx.Value(skips{}).(func(string) bool)
	return ok && ignored(folder)
}

// Skipped returns the object that List shows for a folder that it has skipped.
func Skipped(folder string) Object { return Object{Key: folder, Size: -1} }

// prepares is the key of a Preparation in a context.
type prepares struct{}

// Preparation is the Put of Key that is about to follow a List. A backend whose Put takes several steps can take the
// first ones during the List. The lock doesn't depend on that.
type Preparation struct {
	Key string

	mu   sync.Mutex
	made any
	undo func()
}

// Preparing returns a context for a List and for the Put of key that follows it. If the Put doesn't follow, done undoes
// what the backend has prepared. The caller must call done after both.
func Preparing(ctx context.Context, key string) (with context.Context, done func()) {
	p := &Preparation{Key: key}
	return context.WithValue(ctx, prepares{}, p), func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		if p.undo != nil {
			p.undo()
		}
		p.made, p.undo = nil, nil
	}
}

// Prepares returns the Preparation of a context, or nil.
func Prepares(ctx context.Context) *Preparation {
	p, _ := ctx.Value(prepares{}).(*Preparation)
	return p
}

// Keep stores the things that a List has prepared. undo undoes it. If another List has prepared something, Keep calls
// undo.
func (p *Preparation) Keep(made any, undo func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.undo != nil {
		undo()
		return
	}
	p.made, p.undo = made, undo
}

// Take returns the things that a List has prepared for a Put of key, once, or nil.
func (p *Preparation) Take(key string) (made any) {
	if p == nil || p.Key != key {
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	made = p.made
	p.made, p.undo = nil, nil
	return made
}

// shares is the key of a Sharing in a context.
type shares struct{}

// Sharing has the things that several Gets share, for example an open directory.
type Sharing struct {
	mu   sync.Mutex
	kept map[any]io.Closer // nil after the Gets
}

// SharingGets returns a context for several Gets of one moment. Such a Get can return an object as it was at any time
// after SharingGets. So a backend can open a directory once for all of them. The caller must call done after them, and
// it closes everything that the backend has kept.
func SharingGets(ctx context.Context) (with context.Context, done func()) {
	s := &Sharing{kept: map[any]io.Closer{}}
	return context.WithValue(ctx, shares{}, s), func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		for _, c := range s.kept {
			_ = c.Close()
		}
		s.kept = nil
	}
}

// Shares returns the Sharing of a context, or nil.
func Shares(ctx context.Context) *Sharing {
	s, _ := ctx.Value(shares{}).(*Sharing)
	return s
}

// Kept returns the thing that another Get has kept under a key, or nil.
func (s *Sharing) Kept(key any) io.Closer {
	if s == nil {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.kept[key]
}

// Keep keeps a thing for the other Gets. It returns false if the caller must close the thing itself: another one is
// kept under this key, or the Gets have ended.
func (s *Sharing) Keep(key any, c io.Closer) bool {
	if s == nil {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.kept == nil || s.kept[key] != nil {
		return false
	}
	s.kept[key] = c
	return true
}

// The interfaces below are optional. The lock needs none of them.

// ConditionalDeleter is implemented by backends that can send a condition with a deletion. Some servers accept the
// condition and ignore it.
type ConditionalDeleter interface {
	// DeleteIfMatch removes the object if it has this ETag. It returns ErrPrecondition
	// if the object has another ETag, nil or ErrPrecondition if there is no object, and
	// ErrConditionUnsupported if the server has no such condition. After both errors
	// nothing was removed. It is one request.
	DeleteIfMatch(ctx context.Context, key, etag string) error
}

// DeleteIfMatch calls s.DeleteIfMatch. It returns ErrConditionUnsent if s is no [ConditionalDeleter]. Decorators can
// use it.
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
	// DeleteAll deletes the objects under keys, in one request. There are at most MaxBatch keys, each of them once. For
	// each key, deleted reports whether there is certainly no such object now. If it is false, the server has refused
	// or ignored this key, or has no such request, and the caller must call Delete for it.
	//
	// The error is [ErrBatchUnsupported] if the server has no such request. Any other error means the same for each
	// object as after Delete. With an error, DeleteAll reports no object as deleted.
	DeleteAll(ctx context.Context, keys []string) (deleted []bool, err error)
}

// DeleteAll calls s.DeleteAll. It returns [ErrBatchUnsent] if s is no [BatchDeleter]. Decorators can use it.
func DeleteAll(ctx context.Context, s Store, keys []string) ([]bool, error) {
	if d, ok := s.(BatchDeleter); ok {
		return d.DeleteAll(ctx, keys)
	}
	return make([]bool, len(keys)), &Error{Op: "delete", Key: strings.Join(keys[:min(1, len(keys))], ""), Err: ErrBatchUnsent}
}

// Surveyor is implemented by backends whose List takes longer the more objects there are.
type Surveyor interface {
	// HasOther reports whether there is an object whose key doesn't begin with prefix. It stops at the first one. A
	// decorator returns errors.ErrUnsupported if its store is no Surveyor.
	HasOther(ctx context.Context, prefix string) (bool, error)
}

// HasOther reports whether a store has an object whose key doesn't begin with prefix. If s is no [Surveyor], it reads
// the first page of a listing. known is false if such an object can be on a later page. Decorators can use it.
func HasOther(ctx context.Context, s Store, prefix string) (others, known bool, err error) {
	if v, ok := s.(Surveyor); ok {
		others, err = v.HasOther(ctx, prefix)
		if !errors.Is(err, errors.ErrUnsupported) {
			return others, true, err
		}
	}
	page, err := s.List(ctx, "", "")
	others = slices.ContainsFunc(page.Objects, func(o Object) bool { return !strings.HasPrefix(o.Key, prefix) })
	return others, others || page.Next == "", err
}

// Watcher is implemented by backends that can report deletions without requests.
type Watcher interface {
	// Watch returns a channel that receives a value soon after any process has deleted an object under the prefix,
	// until ctx ends. The channel has room for one value, which stands for any number of deletions. It is never closed.
	//
	// A value is only a hint. A deletion might send none, for example before Watch has returned, or in a new folder, or if
	// another object has the prefix as its key. A value might come although nothing was deleted.
	//
	// After an error there are no hints. After errors.ErrUnsupported, another call fails too.
	Watch(ctx context.Context, prefix string) (<-chan struct{}, error)
}

// Watch calls s.Watch. It returns errors.ErrUnsupported if s is no [Watcher]. Decorators can use it.
func Watch(ctx context.Context, s Store, prefix string) (<-chan struct{}, error) {
	if w, ok := s.(Watcher); ok {
		return w.Watch(ctx, prefix)
	}
	return nil, &Error{Op: "watch", Key: prefix, Err: errors.ErrUnsupported}
}

// Describer is implemented by backends that can read a repository's settings.
type Describer interface {
	// Describe asks the server, in a few requests. If the server refuses to show a setting, that setting is Unknown,
	// and Describe returns no error.
	Describe(ctx context.Context) (Description, error)
}

// Description has the settings of a repository.
type Description struct {
	// Server is the server's own name, or "" if it sends none.
	Server string
	// Versioning is Yes if overwritten and deleted objects are kept as versions.
	Versioning Answer
	// ObjectLock is Yes if versions can be protected from deletion.
	ObjectLock Answer
}

// Answer is the answer to a question that the server can refuse.
type Answer int

const (
	// Unknown means that the server refused the question, or wasn't asked.
	Unknown Answer = iota
	// No means that the setting is off.
	No
	// Yes means that the setting is on.
	Yes
)

// Errors that errors.Is finds in the errors of every backend. Each method of [Store]
// documents what they mean for the stored object.
var (
	// ErrNotFound is returned by Get if the object doesn't exist. Any method returns it if the bucket or the directory
	// doesn't exist.
	ErrNotFound error = fault.NotFound
	// ErrPrecondition is returned by a Put or a deletion whose condition wasn't met. Nothing was written or deleted.
	ErrPrecondition error = fault.Precondition
	// ErrConditionUnsupported is returned by a conditional Put if the store has no such condition, or might have
	// refused the Put because of it. The same Put without the condition shows which is true. Nothing was written.
	ErrConditionUnsupported error = fault.ConditionUnsupported
	// ErrConditionUnsent is an ErrConditionUnsupported of a backend that can't send the condition. Nothing was sent.
	ErrConditionUnsent error = fault.ConditionUnsent
	// ErrBatchUnsupported is returned by [BatchDeleter] if the server can't delete many
	// objects in one request. The caller must call Delete for each.
	ErrBatchUnsupported error = fault.BatchUnsupported
	// ErrBatchUnsent is an ErrBatchUnsupported of a backend that can't send such a request, or knows that the server
	// has none. Nothing was sent.
	ErrBatchUnsent error = fault.BatchUnsent
	// ErrConflict is returned if the store refuses a Put or a deletion because another one of the same object is under
	// way (409). Nothing was written. The next try might succeed.
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
	// ErrIrregular is returned if a link, a pipe or another special file is in the place of an object. It is also
	// returned if one of these, or a file, is in the place of a directory above the object. Nothing was written. A List
	// under such a path must not return an empty page.
	ErrIrregular error = fault.Irregular
	// ErrConfig is returned if the user must change a setting. No credentials are found (and no service failed that
	// might return some later), the bucket is in another region, the endpoint has no TLS or isn't an object store, or
	// the clock is so wrong that the server refuses the signature.
	ErrConfig error = fault.Config
	// ErrUnreachable is returned if the store gave no answer: there is no connection, or it broke before an answer
	// began, or no answer began in time. It is also returned for an answer with status 502, 503 or 504 that isn't in
	// the form of the store's own answers, and if a proxy can't open the connection. Any other answer shows that the
	// store was reached, even one that can't be understood. In doubt a backend MUST NOT return ErrUnreachable, because
	// it can make a program run without a lock. After it, a Put might have been applied, or might be later.
	ErrUnreachable error = fault.Unreachable
	// ErrNoHost is returned if the name service doesn't know the endpoint's name: the name is
	// wrong, or belongs to another network than this machine's.
	ErrNoHost error = fault.NoHost
	// ErrFull is returned if no space is left, or a quota is used up.
	ErrFull error = fault.Full
	// ErrListing is returned if a listing isn't reliable, because it isn't in order or has no end. The next listing
	// might be right.
	ErrListing error = fault.Listing
	// ErrURL is returned for a repository URL that can't be understood.
	ErrURL error = fault.URL
)

// Error is the error of every method of a backend. It has the request that failed, its key or prefix, and the reason.
// It is one line, without credentials.
type Error struct {
	Op  string // "put", "get", "list", "delete", "open"
	Key string // the key, the prefix of a List, or the location that couldn't be opened
	Err error  // the reason
}

// Error returns the operation, the key in quotes, and the reason.
func (e *Error) Error() string { return fmt.Sprintf("%s %q: %v", e.Op, e.Key, e.Err) }

// Unwrap returns the reason, for errors.Is and errors.As.
func (e *Error) Unwrap() error { return e.Err }

// Permanent reports whether the same request would fail again for the same reason.
func Permanent(err error) bool { return fault.Permanent(err) }

// Unreachable returns err as an [ErrUnreachable], with the same text.
func Unreachable(err error) error { return fault.As(fault.Unreachable, err) }

// maxKey is the longest key that every store allows, in bytes. S3 and B2 have this limit.
const maxKey = 1024

// CheckKey returns ErrInvalidKey, with the reason, for a key that could lead out of the repository, or that some store
// can't store. A key has 1 to 1024 bytes of UTF-8 without NUL and backslash. No element between its slashes is empty,
// "." or "..".
func CheckKey(key string) error {
	bad := func(why string) error { return fmt.Errorf("%w: %s", ErrInvalidKey, why) }
	switch {
	case len(key) > maxKey:
		return bad("longer than 1024 bytes")
	case !utf8.ValidString(key):
		return bad("not UTF-8")
	case strings.ContainsAny(key, "\x00\\"):
		return bad("NUL or backslash")
	}
	for element := range strings.SplitSeq(key, "/") {
		switch element {
		case "", ".", "..":
			return bad(`an empty, "." or ".." element`)
		}
	}
	return nil
}
