// Package store is the object store that a repository lives on, reduced to the
// four requests that a lock needs. It knows nothing of locks.
//
// A backend is a package of its own (store/dir, store/mem) and does as little
// as it can: retries, counting and faults are decorators around the interface,
// and the rules below are checked for every backend by one suite,
// store/storetest.
package store

import (
	"context"
	"time"
)

// Store is an object store. All methods may be called concurrently, by any
// number of goroutines and by any number of processes on the same repository.
//
// Keys are UTF-8, separated by slashes, without a leading slash, and without
// empty, "." or ".." elements; see [CheckKey].
//
// The one guarantee that the lock's safety rests on: a List that starts after a
// Put was answered MUST show what was put, in whatever process, until it is
// deleted. An object that is overwritten while a List runs MUST be shown, in
// its old or in its new form.
//
// The backend checks keys: each method but List MUST return [ErrInvalidKey] for a key that
// CheckKey refuses, and send nothing. A prefix is no key: List takes any.
//
// Every method MUST return soon after its context has ended. What an error
// means for what is stored is said at each method. An error that a method returns is an
// [*Error] in one line, without credentials; errors.Is finds the errors of this package in
// it. An error that isn't [Permanent] is one after which the lock sends the request again.
//
// A backend doesn't repeat a request, and the retries of the client that it is built
// on MUST be off: the lock repeats requests itself, within the time that it has left. A
// Put that a client sends again may be applied after a later Put of the same key.
type Store interface {
	// Put stores body under key, whole or not at all: no reader ever sees a
	// part of it.
	//
	// With a condition (see [PutOptions]) the check and the write MUST be one
	// atomic step if the backend declares the condition as [Kept]. A condition
	// that isn't met gives [ErrPrecondition]; one that the backend can't carry
	// gives [ErrConditionUnsupported], and never an unconditional write.
	//
	// After ErrPrecondition, ErrConditionUnsupported, ErrPermission or
	// ErrNotFound nothing was written by this request, as far as the store
	// says. After any other error, a context's end included, the body may have
	// been written, may be written later, or never.
	Put(ctx context.Context, key string, body []byte, opts PutOptions) (Object, error)

	// Get reads an object of at most limit bytes. A larger one gives
	// [ErrTooLarge], and no more than about limit bytes are read of it; one
	// that isn't there gives [ErrNotFound].
	Get(ctx context.Context, key string, limit int64) ([]byte, Object, error)

	// List returns one page of the objects whose key begins with prefix, in
	// byte order of the keys. It is exactly one request. The first page has the
	// cursor ""; the next one the cursor that the last page gave, and needn't show an object
	// that was first put after the first page was asked for. A page that isn't the
	// last may have fewer objects than the store could list, or none; but each page begins
	// after the last key of those before, and its cursor is a new one. A prefix
	// under which there is nothing gives an empty page and no error.
	//
	// The more objects a page has, the fewer requests a lock takes. See [Finite].
	List(ctx context.Context, prefix, cursor string) (Page, error)

	// Delete removes an object. One that isn't there is no error. After
	// ErrPermission nothing was removed; after any other error it may have
	// been, or be later. A key that List shows and that isn't valid is removed,
	// or gives ErrInvalidKey; so is a folder (see [Page]), if it is still empty.
	Delete(ctx context.Context, key string) error

	// Properties says what the backend can do. It makes no request and always
	// gives the same answer.
	Properties() Properties
}

// PutOptions says under which condition a body is stored. The zero value is an
// unconditional Put. A caller MUST NOT set both IfAbsent and IfMatch: no object meets both.
type PutOptions struct {
	// IfAbsent stores only if there is no object under the key.
	IfAbsent bool
	// IfMatch stores only if the object under the key has this ETag. If there
	// is no object the answer is ErrPrecondition, and nothing is written: else
	// the Put would bring back what another process has deleted. Some servers
	// that claim the condition create the object then (minio/minio#21526).
	IfMatch string
	// Replaces, in a Put without a condition, is the ETag of the object that
	// the caller has just seen under the key. It asks for no condition, but a
	// backend that has none and keeps versions MUST look after writing whether
	// that version was the newest one until then. If it was, the version is removed; if it
	// wasn't, what was written is removed and the answer is ErrPrecondition.
	// So a deletion between the look and the Put isn't undone. Other backends
	// ignore it.
	Replaces string
	// Durable asks that the body survive a crash of the machine that the store
	// runs on before Put is answered. Stores that always do that ignore it.
	Durable bool
}

// Object describes a stored object.
type Object struct {
	Key string
	// ETag is opaque, and changes whenever the body changes. It may be a
	// function of the body alone, so that writing a body again gives the ETag
	// that it had. It is "" where a response doesn't tell it.
	ETag string
	// Size of the body in bytes, -1 if there is something under the key that
	// has no size, and that Get will fail for.
	Size int64
	// ModTime is when the object was written, on the store's own clock, rounded
	// down to whatever the store keeps. It is zero where a response doesn't
	// tell it.
	ModTime time.Time
}

// Page is a part of a listing.
type Page struct {
	Objects []Object
	// Next is the cursor of the next page, "" if this one is the last.
	Next string
	// Folders are directories under the prefix that were found empty, where the store
	// has such a thing, each with a slash at its end. A Put that is under way may have
	// just made one.
	Folders []string
	// Now is the store's own clock when it answered, zero if the response
	// doesn't tell it. It MUST be a reading of the clock that stamps ModTime,
	// and never later than that clock at the time that List returns.
	Now time.Time
}

// Properties are what a backend declares of itself.
type Properties struct {
	// Name of the backend for messages: "dir", "mem".
	Name string
	// IfAbsent and IfMatch say how far a conditional Put can be relied on.
	IfAbsent, IfMatch Condition
	// StoreClock says that one clock, which no client sets, stamps ModTime and
	// Page.Now. Without it they are what some client's clock said, which goes
	// for many network file systems.
	StoreClock bool
}

// Condition says how far a kind of conditional Put can be relied on.
type Condition int

const (
	// Unsupported conditions are answered with ErrConditionUnsupported.
	Unsupported Condition = iota
	// Claimed conditions are sent with the request, but whether the server
	// heeds them isn't known: some accept and ignore them.
	Claimed
	// Kept conditions are kept by the backend itself.
	Kept
)

// String names the condition for messages.
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
