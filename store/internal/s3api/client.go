// Package s3api is what the backends for S3's protocol have in common: the
// contract of store.Store on top of a client library that sends single requests.
//
// A success that doesn't have the form of S3's (a captive portal's page, a list for another
// prefix, half a list) is an error: as an empty listing it would mean that the lock is free.
package s3api

import (
	"context"
	"io"
	"time"

	"github.com/repolock/repolock/store"
)

// Client is a client library for one bucket, reduced to single requests. It sends each
// request once: a conditional put that was applied, not answered and then repeated would
// be answered as if another client had won. It uses a transport of [Transport], and passes
// the context on to it.
type Client interface {
	// Signable returns an error if there are no credentials to sign with, a [PassingError] if
	// there might be some the next time. Store calls it before each request.
	Signable(ctx context.Context) error
	// Put stores a body. ifMatch is an ETag without quotes, or "".
	Put(ctx context.Context, key string, body []byte, ifAbsent bool, ifMatch string) error
	Get(ctx context.Context, key string) (io.ReadCloser, error)
	// List returns up to 1000 objects in one request, and the cursor of the next
	// page, or "".
	List(ctx context.Context, prefix, cursor string) (objects []store.Object, next string, err error)
	// Delete removes an object, or one version of it.
	Delete(ctx context.Context, key, version string) error
	// DeleteAll deletes up to 1000 objects in one request, and returns those that the
	// answer names as deleted. If it names none, it can return an error of any of them.
	DeleteAll(ctx context.Context, keys []string) ([]Deleted, error)
	// Versions returns up to 1000 versions of a key and of those that begin with it, in
	// a versioned bucket, the newest of each key first.
	Versions(ctx context.Context, key string) ([]Version, error)
	Versioning(ctx context.Context) (bool, error)
	ObjectLock(ctx context.Context) (bool, error)
}

// ConditionalDeleter is a Client that can send If-Match with a deletion.
type ConditionalDeleter interface {
	DeleteIfMatch(ctx context.Context, key, ifMatch string) error
}

// Deleted is an object that was deleted. Marker is the version of the marker that says so, in a
// versioned bucket.
type Deleted struct{ Key, Marker string }

// Version is a version of an object, or a marker that says it was deleted.
type Version struct {
	Key, ID string
	Marker  bool
}

// tidyTimeout bounds the removal of old versions.
const tidyTimeout = 2 * time.Second
