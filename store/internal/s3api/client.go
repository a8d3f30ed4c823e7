// Package s3api is what the backends for S3's protocol have in common: the
// contract of store.Store on top of a client library that sends single requests.
//
// What a server answers is not believed further than it must be. A success that
// isn't one of S3's (a captive portal's page, a list for another prefix, half a
// list) is an error: read as an empty listing it would say that nobody holds a
// lock.
package s3api

import (
	"context"
	"io"
	"time"

	"github.com/repolock/repolock/store"
)

// Client is a client library for one bucket, reduced to single requests. It
// sends each request once: what it repeated by itself, a conditional put that
// was applied and not answered, would be answered as if another had won. It
// uses a transport that [Transport] made, and passes the context on to it.
type Client interface {
	// Signable says, in our words, that there are no credentials to sign with. It
	// is asked before each request for the lock.
	Signable(ctx context.Context) error
	// Put stores a body. ifMatch is an ETag without quotes, or "".
	Put(ctx context.Context, key string, body []byte, ifAbsent bool, ifMatch string) error
	Get(ctx context.Context, key string) (io.ReadCloser, error)
	// List gives up to 1000 objects in one request, and the cursor of the next
	// page, or "".
	List(ctx context.Context, prefix, cursor string) (objects []store.Object, next string, err error)
	// Delete removes an object, or one version of it.
	Delete(ctx context.Context, key, version string) error
	// Versions gives what a versioned bucket has under a key and those that
	// begin with it, up to 1000, of each key the newest first.
	Versions(ctx context.Context, key string) ([]Version, error)
	Versioning(ctx context.Context) (bool, error)
	ObjectLock(ctx context.Context) (bool, error)
}

// ConditionalDeleter is a Client that can send If-Match with a deletion.
type ConditionalDeleter interface {
	DeleteIfMatch(ctx context.Context, key, ifMatch string) error
}

// Version is a version of an object, or a marker that says it was deleted.
type Version struct {
	Key, ID string
	Marker  bool
}

// tidyTimeout bounds what is done for tidiness alone.
const tidyTimeout = 2 * time.Second
