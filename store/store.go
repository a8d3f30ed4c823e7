// Package store is the interface of a repository's object store, reduced to the four requests
// that a lock needs. It knows nothing of locks.
//
// Each backend is a package of its own: store/dir, store/s3, store/minio, store/b2 and
// store/mem. Package store/open opens the backend of a URL. The suite store/storetest
// checks the rules below for every backend, also for one of another module; see
// examples/backend. Retries, counting and faults are decorators around the interface.
//
// # Cost
//
// Put, Get, List and Delete are one request each, unless a backend's package comment differs.
// Properties is none.
package store

import (
	"context"
	"time"
)

// Store is an object store. All methods can be called concurrently, by any number of
// goroutines, and by any number of processes on the same repository.
//
// Keys are UTF-8, separated by slashes, without a leading slash, and without
// empty, "." or ".." elements; see [CheckKey].
//
// The lock's safety depends on one guarantee: if a List starts after the answer to a Put, in any
// process, it MUST show that object until the object is deleted. If an object is overwritten
// while a List runs, the List MUST show its old or its new form.
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
	// The larger the pages, the fewer requests a lock needs. See [Finite].
	List(ctx context.Context, prefix, cursor string) (Page, error)

	// Delete removes an object. It is no error if there is none. After
	// ErrPermission nothing was removed. After any other error the object might be
	// removed already, or later, or never. If List shows a key that isn't valid, or
	// an empty folder (see [Page]), Delete removes it or returns ErrInvalidKey.
	Delete(ctx context.Context, key string) error

	// Properties returns the properties that the backend declares. It makes no
	// request, and always returns the same.
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
	// Durable makes Put return only once the body would survive a crash of the
	// store's machine. Stores that always do so ignore it.
	Durable bool
}

// Object describes a stored object.
type Object struct {
	Key string
	// ETag is opaque, and changes whenever the body changes. It can be a function of
	// the body alone, so that the same body has the same ETag again. It is "" if the
	// response doesn't have it.
	ETag string
	// Size of the body in bytes, or -1 for an entry without a size, which Get
	// refuses.
	Size int64
	// ModTime is when the object was written, on the store's clock, rounded down to
	// the store's precision. It is zero if the response doesn't have it.
	ModTime time.Time
	// Now is set by Put: the store's clock when it answered, as Page.Now, or zero if
	// the response doesn't have it.
	Now time.Time
}

// Page is a part of a listing.
type Page struct {
	Objects []Object
	// Next is the cursor of the next page, "" if this one is the last.
	Next string
	// Folders are the empty directories under the prefix, each with a slash at its
	// end, if the store has directories. A Put under way might have made one.
	Folders []string
	// Now is the store's clock when it answered, or zero if the response doesn't have
	// it. It MUST be a reading of the clock that stamps ModTime, and MUST NOT be later
	// than that clock when List returns.
	Now time.Time
}

// Properties are the properties that a backend declares.
type Properties struct {
	// Name of the backend for messages: "dir", "mem".
	Name string
	// IfAbsent and IfMatch are how far a conditional Put can be relied on.
	IfAbsent, IfMatch Condition
	// DeleteIfMatch is how far the condition of a [ConditionalDeleter] can be relied on. A
	// deletion whose condition is Kept needs no look before it.
	DeleteIfMatch Condition
	// StoreClock is set if one clock, which no client sets, stamps ModTime and
	// Page.Now. On many network file systems each client's own clock does.
	StoreClock bool
	// MachineClock is set if that clock is the wall clock of this process's machine, as on a
	// local disk. Then a step of the wall clock changes both, so that neither can check the
	// other.
	MachineClock bool
	// PutCreates is set if a Put might create the bucket of the URL, as on some S3 servers. Then
	// a misspelled name has to fail before the first Put.
	PutCreates bool
}

// Condition is how far a kind of condition can be relied on.
type Condition int

const (
	// Unsupported: the request returns ErrConditionUnsupported.
	Unsupported Condition = iota
	// Claimed: the backend sends the condition, but the server might accept and
	// ignore it.
	Claimed
	// Kept: check and change are one atomic step.
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
