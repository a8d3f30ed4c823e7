// Package s3api implements store.Store for S3's protocol, on a client library that sends single requests. The backends
// s3 and minio share it.
//
// The library only sends. This package reads the answers itself, as they arrive. If a success doesn't have the form of
// S3's successes (a captive portal's page, a list for another prefix, half a list), it is an error. If it were treated
// as an empty listing, the lock would look free.
package s3api

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/repolock/repolock/internal/clock"
	"github.com/repolock/repolock/internal/text"
	"github.com/repolock/repolock/store"
	"github.com/repolock/repolock/store/internal/httptransport"
)

// Client is a client library for one bucket, reduced to single requests. It sends each request once. If it repeated a
// conditional put that was applied but not answered, the second answer would look as if another client had won. It
// sends each request, with its context, through a transport of [httptransport.Watched]. It returns an error unless the
// answer is a success.
type Client interface {
	// Signable returns the keys that sign the next request, or an error if there are none. If there might be some
	// later, the error is a [fault.CredentialsLater]. Store calls Signable before each request.
	Signable(ctx context.Context) (Keys, error)
	// Renew is Signable after a refusal: it looks for credentials anew, because another process might have written
	// new ones into a file. Unless the server has refused the credentials themselves, Renew asks no service and starts
	// no program.
	Renew(ctx context.Context, refused bool) (Keys, error)
	// Put stores a body. ifMatch is an ETag without quotes, or "".
	Put(ctx context.Context, key string, body []byte, ifAbsent bool, ifMatch string) error
	// Get returns the body of an object.
	Get(ctx context.Context, key string) (io.ReadCloser, error)
	// List asks for up to 1000 objects.
	List(ctx context.Context, prefix, cursor string) error
	// Delete removes an object, or one version of it.
	Delete(ctx context.Context, key, version, ifMatch string) error
	// DeleteAll deletes up to 1000 objects in one request, and asks for an answer that names the deleted
	// ones. If the answer names none, DeleteAll can return the error of any object.
	DeleteAll(ctx context.Context, keys []string) error
	// Versions asks for up to 1000 versions of key and of longer keys that begin with it.
	Versions(ctx context.Context, key string) error
	// Versioning asks whether the bucket keeps versions.
	Versioning(ctx context.Context) error
	// ObjectLock asks for the bucket's Object Lock setting.
	ObjectLock(ctx context.Context) error
}

// Keys are the credentials that sign a request. They are secret.
type Keys struct{ ID, Secret, Token string }

// Place is the location of a repository, with the known properties of its server.
type Place struct {
	// Name is the backend's name.
	Name   string
	Bucket string // name of the bucket
	Prefix string // prefix of all keys: "", or with a slash at its end
	Host   string // the server's host, for messages
	// Endpoint is the server's URL, without credentials. "" means Amazon's server.
	Endpoint string
	// PlainHint is the advice for a server that has no TLS.
	PlainHint string
	// Own reports whether the store itself has sent a request. A provider of credentials can use the transport under
	// the same context. If Own is nil, all requests are the store's.
	Own func(*http.Request) bool
	// Conditions is how far we can rely on the conditions of puts, and Deletions on the conditions of deletions. If
	// Deletions is Unsupported, the client can't send a condition with a deletion.
	Conditions, Deletions store.Condition
	// Headers are sent with each put.
	Headers PutHeaders
	// Fresh is set if the user vouches for the listings of a server that might show objects late.
	Fresh bool
	// KeyCursor is set if the cursor of a listing is the last key instead of the server's token.
	KeyCursor bool
}

// Store is a store that uses a client library of S3.
type Store struct {
	client Client
	place  Place
	tidy   tidy
	now    func() time.Time
	signed atomic.Bool // an earlier request had credentials
	heard  atomic.Bool // a request was refused, and then sent again
	// renewing has room for the one request that renews the credentials.
	renewing chan struct{}

	unbatched atomic.Bool // the server can't delete many objects in one request
}

var (
	_ store.Store              = (*Store)(nil)
	_ store.Describer          = (*Store)(nil)
	_ store.ConditionalDeleter = (*Store)(nil)
	_ store.BatchDeleter       = (*Store)(nil)
)

// New returns a store. It makes no request.
func New(c Client, p Place) *Store {
	return &Store{client: c, place: p, tidy: tidy{own: make(map[string][]string)}, now: clock.System{}.Now, renewing: make(chan struct{}, 1)}
}

// Properties returns the known properties of the server.
func (s *Store) Properties() store.Properties {
	c := s.place.Conditions
	return store.Properties{
		Name: s.place.Name, IfAbsent: c, IfMatch: c, DeleteIfMatch: min(c, s.place.Deletions), StoreClock: true,
		PutCreates: s.place.Endpoint != "", // SeaweedFS does; Amazon's servers don't
	}
}

// Location returns the server, the bucket and the prefix. It is "" on Amazon's servers.
func (s *Store) Location() string {
	if s.place.Endpoint == "" {
		return ""
	}
	return s.place.Endpoint + "/" + s.place.Bucket + "/" + s.place.Prefix
}

// Put stores a body. If the bucket keeps versions, Put then removes the version that this store wrote before it.
func (s *Store) Put(ctx context.Context, key string, body []byte, opts store.PutOptions) (store.Object, error) {
	r := &request{op: "put", key: key, permission: "s3:PutObject", conditional: opts.IfAbsent || opts.IfMatch != "", ifMatch: opts.IfMatch != ""}
	covered := s.tidy.covered(key)
	_, err := s.do(ctx, r, func(ctx context.Context) error {
		return s.client.Put(ctx, s.place.Prefix+key, body, opts.IfAbsent, opts.IfMatch)
	})
	if err != nil {
		return store.Object{}, err
	}
	tag := etag(r.answer.Header("Etag"))
	if tag == "" { // the put might have been applied, and must be repeated
		return store.Object{}, r.failed(fmt.Errorf("%s answers a put with %d and no ETag", s.place.Host, r.answer.Status()))
	}
	s.tidy.wrote(ctx, s, key, r.answer.Header("X-Amz-Version-Id"), covered)
	// The answer doesn't have the object's mod time. Its Date is when the server sent the answer.
	return store.Object{Key: key, ETag: tag, Size: int64(len(body)), Now: r.answer.Date()}, nil
}

// Get reads an object.
func (s *Store) Get(ctx context.Context, key string, limit int64) ([]byte, store.Object, error) {
	r := &request{op: "get", key: key, permission: "s3:GetObject", limit: limit}
	_, err := s.do(ctx, r, func(ctx context.Context) error {
		stream, err := s.client.Get(ctx, s.place.Prefix+key)
		if err == nil {
			_ = stream.Close() // r.answer has the body
		}
		return err
	})
	if err != nil {
		return nil, store.Object{}, err
	}
	body := r.answer.Body()
	if int64(len(body)) > limit {
		return nil, store.Object{}, r.failed(store.ErrTooLarge)
	}
	o := store.Object{Key: key, ETag: etag(r.answer.Header("Etag")), Size: int64(len(body))}
	if modified, err := time.Parse(time.RFC1123, r.answer.Header("Last-Modified")); err == nil {
		o.ModTime = modified
	}
	return body, o, nil
}

// List sends one request. If no key can have the prefix, it sends none, because some servers refuse such a prefix.
func (s *Store) List(ctx context.Context, prefix, cursor string) (store.Page, error) {
	if store.CheckKey(prefix+"x") != nil {
		return store.Page{}, ctx.Err()
	}
	r := &request{op: "list", key: prefix, permission: "s3:ListBucket", root: "ListBucketResult"}
	list, err := s.do(ctx, r, func(ctx context.Context) error { return s.client.List(ctx, s.place.Prefix+prefix, cursor) })
	if err != nil {
		return store.Page{}, err
	}
	if err := s.late(r); err != nil {
		return store.Page{}, r.failed(err)
	}
	page, err := s.page(list, prefix)
	if err != nil {
		return store.Page{}, r.failed(s.broken(r, err))
	}
	page.Now = r.answer.Date()
	return page, nil
}

// Delete removes an object. On a versioned bucket it also removes the versions that this
// store has written, if that is permitted.
func (s *Store) Delete(ctx context.Context, key string) error { return s.remove(ctx, key, "") }

// DeleteIfMatch is Delete with a condition, on a client that can send it.
func (s *Store) DeleteIfMatch(ctx context.Context, key, etag string) error {
	if s.place.Deletions == store.Unsupported || etag == "" {
		return &store.Error{Op: "delete", Key: key, Err: store.ErrConditionUnsent}
	}
	return s.remove(ctx, key, etag)
}

func (s *Store) remove(ctx context.Context, key, etag string) error {
	r := &request{op: "delete", key: key, permission: "s3:DeleteObject", conditional: etag != "", ifMatch: etag != ""}
	covered := s.tidy.covered(key)
	_, err := s.do(ctx, r, func(ctx context.Context) error { return s.client.Delete(ctx, s.place.Prefix+key, "", etag) })
	switch {
	case err != nil && r.answer.Status() == 404 && r.refusal().Code == "NoSuchKey":
		return nil
	case err != nil && r.odd() && s.gone(ctx, key):
		return nil
	case err == nil && r.answer.Header("X-Amz-Delete-Marker") == "true":
		s.tidy.deleted(ctx, s, key, r.answer.Header("X-Amz-Version-Id"), covered)
	}
	return err
}

// odd reports whether the answer to a deletion leaves open whether the object is gone. Supabase answers 200, as does a
// proxy that drops the deletion. Some servers answer 404 without a code if there is no object.
func (r *request) odd() bool {
	status := r.answer.Status()
	return (status == http.StatusOK || status == http.StatusNotFound) && r.refusal().Code == ""
}

// gone reports whether a listing shows that there is no object. It is one request.
func (s *Store) gone(ctx context.Context, key string) bool {
	page, err := s.List(ctx, key, "")
	shown := func(o store.Object) bool { return o.Key == key } // the first one, if any
	return err == nil && !slices.ContainsFunc(page.Objects, shown) && (len(page.Objects) > 0 || page.Next == "")
}

// DeleteAll deletes many objects in one request. It reports a key as deleted only if the answer names it, because some
// servers skip keys and still answer with success. On a versioned bucket it treats each key as Delete does.
func (s *Store) DeleteAll(ctx context.Context, keys []string) ([]bool, error) {
	deleted := make([]bool, len(keys))
	index, covered := map[string]int{}, map[string][]string{}
	var names []string
	for i, key := range keys[:min(len(keys), store.MaxBatch)] {
		if store.CheckKey(key) != nil || !inXML(key) {
			continue
		}
		name := s.place.Prefix + key
		names, index[name], covered[name] = append(names, name), i, s.tidy.covered(key)
	}
	if s.unbatched.Load() || len(names) == 0 {
		return deleted, &store.Error{Op: "delete", Key: strings.Join(keys[:min(1, len(keys))], ""), Err: store.ErrBatchUnsent}
	}
	r := &request{op: "delete", key: strings.TrimPrefix(names[0], s.place.Prefix), permission: "s3:DeleteObject", root: "DeleteResult"}
	done, err := s.do(ctx, r, func(ctx context.Context) error { return s.client.DeleteAll(ctx, names) })
	if err != nil {
		return deleted, s.batchFailed(ctx, r, err)
	}
	for _, d := range done.named("Deleted") {
		i, asked := index[d.Key]
		if !asked {
			continue
		}
		deleted[i] = true
		if d.DeleteMarkerVersionId != "" {
			s.tidy.deleted(ctx, s, keys[i], d.DeleteMarkerVersionId, covered[d.Key])
		}
	}
	return deleted, nil
}

// batchFailed returns the error of a request to delete many objects. A server without that request can answer 400, 405,
// 411, 501, a page, or a success of another form. So unless the server fails or is throttling, the error means that the
// caller must delete the objects one by one.
func (s *Store) batchFailed(ctx context.Context, r *request, failed error) error {
	status := r.answer.Status()
	if ctx.Err() != nil || status == 0 || httptransport.Passing(status) && status != http.StatusNotImplemented {
		return failed
	}
	if status >= 300 {
		s.unbatched.Store(true)
	}
	return r.failed(fmt.Errorf("%w: %w", store.ErrBatchUnsupported, failed))
}

// inXML reports whether XML 1.0 can carry a key unchanged. XML has no control characters, and its parsers replace line
// ends.
func inXML(key string) bool {
	return !strings.ContainsFunc(key, func(r rune) bool { return r < 0x20 || r == 0xFFFE || r == 0xFFFF })
}

// Describe asks for the bucket's settings.
func (s *Store) Describe(ctx context.Context) (store.Description, error) {
	var d store.Description
	for _, ask := range []struct {
		answer   *store.Answer
		root     string
		question func(context.Context) error
	}{
		{&d.Versioning, "VersioningConfiguration", s.client.Versioning},
		{&d.ObjectLock, "ObjectLockConfiguration", s.client.ObjectLock},
	} {
		r := &request{op: "describe", key: "bucket", permission: "s3:GetBucketVersioning", root: ask.root}
		got, err := s.do(ctx, r, ask.question)
		if d.Server = r.answer.Header("Server"); r.ofRclone() {
			d.Server = "rclone serve s3, or a server like it: repolock relies on its listings because of listings=fresh in the URL"
		}
		switch {
		case ctx.Err() != nil:
			return d, err
		case err == nil && (got.Status == "Enabled" || got.ObjectLockEnabled == "Enabled"):
			*ask.answer = store.Yes
		case err == nil, r.refusal().Code == "ObjectLockConfigurationNotFoundError":
			*ask.answer = store.No
		}
	}
	return d, nil
}

// Answered reports whether a request was refused, and then sent again.
func (s *Store) Answered() bool { return s.heard.Load() }

// deletion returns the command with which a person can delete an object whose key is invalid.
func (p Place) deletion(key string) string {
	command := "aws s3api delete-object"
	if p.Endpoint != "" {
		command += " --endpoint-url " + text.ShellWord(p.Endpoint)
	}
	return command + " --bucket " + text.ShellWord(p.Bucket) + " --key " + text.ShellWord(p.Prefix+key)
}

// etag returns an ETag without its quotes. Some servers send them in only some of their answers.
func etag(s string) string { return strings.Trim(strings.TrimPrefix(s, "W/"), `"`) }
