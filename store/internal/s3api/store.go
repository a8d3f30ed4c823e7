package s3api

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/repolock/repolock/internal/clock"
	"github.com/repolock/repolock/store"
	"github.com/repolock/repolock/store/internal/httptransport"
)

// Place is where a repository is.
type Place struct {
	Bucket string
	Prefix string // of all keys, "" or ending in a slash
	Host   string // for messages
	// Endpoint is the server's URL, without credentials; "" is Amazon's.
	Endpoint string
	// PlainHint says how to speak to a server without TLS.
	PlainHint string
	// Own reports whether a request on the transport is the client's own: a provider of
	// credentials can use the transport too, under the same context. If it is nil, all are.
	Own func(*http.Request) bool
}

// Store is the contract of store.Store on a client.
type Store struct {
	client Client
	place  Place
	props  store.Properties
	tidy   tidy
	now    func() time.Time
	signed atomic.Bool // there were credentials once
	heard  atomic.Bool // a request was answered, and sent again

	unbatched atomic.Bool // the server has refused to delete many objects in one request
}

var (
	_ store.Store              = (*Store)(nil)
	_ store.Describer          = (*Store)(nil)
	_ store.Answerer           = (*Store)(nil)
	_ store.ConditionalDeleter = (*Store)(nil)
	_ store.BatchDeleter       = (*Store)(nil)
)

// New returns a store. conditions is how far those of puts can be relied on, and deletions those
// of deletions. It makes no request.
func New(c Client, p Place, name string, conditions, deletions store.Condition) *Store {
	return &Store{
		client: c,
		place:  p,
		props: store.Properties{
			Name: name, IfAbsent: conditions, IfMatch: conditions, DeleteIfMatch: min(conditions, deletions), StoreClock: true,
			PutCreates: p.Endpoint != "", // SeaweedFS does; Amazon's servers don't
		},
		tidy: tidy{own: make(map[string][]string)},
		now:  clock.System{}.Now,
	}
}

// Properties returns the known properties of the server.
func (s *Store) Properties() store.Properties { return s.props }

// Put stores a body, and afterwards, if the bucket keeps versions, removes the version that
// this store wrote before.
func (s *Store) Put(ctx context.Context, key string, body []byte, opts store.PutOptions) (store.Object, error) {
	ctx, r, err := s.begin(ctx, "put", key, "s3:PutObject")
	if err != nil {
		return store.Object{}, err
	}
	r.conditional, r.ifMatch = opts.IfAbsent || opts.IfMatch != "", opts.IfMatch != ""
	if r.conditional && s.props.IfAbsent == store.Unsupported {
		return store.Object{}, &store.Error{Op: r.op, Key: key, Err: store.ErrConditionUnsent}
	}
	covered := s.tidy.covered(key)
	err = s.once(ctx, r, func() error { return s.client.Put(ctx, s.place.Prefix+key, body, opts.IfAbsent, opts.IfMatch) })
	etag := ETag(r.answer.Header("Etag"))
	if err != nil {
		return store.Object{}, s.failed(ctx, r, err)
	}
	if etag == "" { // it might be applied, and must be tried again
		return store.Object{}, &store.Error{Op: r.op, Key: key, Err: fmt.Errorf("%s answers a put with %d and no ETag", s.place.Host, r.answer.Status())}
	}
	s.tidy.wrote(ctx, s, key, r.answer.Header("X-Amz-Version-Id"), covered)
	// The answer has no time of the write: its Date is when it was sent.
	return store.Object{Key: key, ETag: etag, Size: int64(len(body)), Now: r.answer.Date()}, nil
}

// Get reads an object.
func (s *Store) Get(ctx context.Context, key string, limit int64) ([]byte, store.Object, error) {
	ctx, r, err := s.begin(ctx, "get", key, "s3:GetObject")
	if err != nil {
		return nil, store.Object{}, err
	}
	var body []byte
	err = s.once(ctx, r, func() error {
		stream, err := s.client.Get(ctx, s.place.Prefix+key)
		if err != nil {
			return err
		}
		defer stream.Close()
		body, err = io.ReadAll(io.LimitReader(stream, limit+1))
		return err
	})
	switch {
	case err != nil:
		return nil, store.Object{}, s.failed(ctx, r, err)
	case int64(len(body)) > limit:
		return nil, store.Object{}, &store.Error{Op: r.op, Key: key, Err: store.ErrTooLarge}
	}
	o := store.Object{Key: key, ETag: ETag(r.answer.Header("Etag")), Size: int64(len(body))}
	if modified, err := time.Parse(time.RFC1123, r.answer.Header("Last-Modified")); err == nil {
		o.ModTime = modified
	}
	return body, o, nil
}

// List sends one request, or none for a prefix that no key can have: some servers refuse
// those.
func (s *Store) List(ctx context.Context, prefix, cursor string) (store.Page, error) {
	if store.CheckKey(prefix+"x") != nil {
		return store.Page{}, ctx.Err()
	}
	ctx, answer := httptransport.Watch(ctx, s.place.Own)
	r := request{op: "list", key: prefix, permission: "s3:ListBucket", answer: answer}
	var page store.Page
	err := s.once(ctx, r, func() (err error) {
		page.Objects, page.Next, err = s.client.List(ctx, s.place.Prefix+prefix, cursor)
		return err
	})
	if err != nil {
		return store.Page{}, s.failed(ctx, r, err)
	}
	for i := range page.Objects {
		o := &page.Objects[i]
		key, ok := strings.CutPrefix(o.Key, s.place.Prefix)
		if !ok || !strings.HasPrefix(key, prefix) {
			return store.Page{}, s.failed(ctx, r, fmt.Errorf("the listing has %q, which wasn't asked for", o.Key))
		}
		o.Key, o.ETag = key, ETag(o.ETag)
	}
	page.Objects = merged(page.Objects)
	if !slices.IsSortedFunc(page.Objects, func(a, b store.Object) int { return strings.Compare(a.Key, b.Key) }) {
		return store.Page{}, s.failed(ctx, r, fmt.Errorf("%w: it is in no order", store.ErrListing))
	}
	page.Now = answer.Date()
	return page, nil
}

// merged joins objects with the same key: some servers list a key twice while it is
// overwritten. The newer one counts. In doubt it is the one with a body, because an empty
// one means that a lock was released.
func merged(objects []store.Object) []store.Object {
	out := objects[:0]
	for _, o := range objects {
		n := len(out)
		switch {
		case n == 0 || out[n-1].Key != o.Key:
			out = append(out, o)
		case out[n-1].Size == 0 || o.Size > 0 && !o.ModTime.Before(out[n-1].ModTime):
			out[n-1] = o
		}
	}
	return out
}

// Delete removes an object. On a versioned bucket it also removes the versions that this
// store has written, if that is permitted.
func (s *Store) Delete(ctx context.Context, key string) error {
	return s.remove(ctx, key, false, func(ctx context.Context) error { return s.client.Delete(ctx, s.place.Prefix+key, "") })
}

// DeleteIfMatch is Delete with a condition, on a client that can send it.
func (s *Store) DeleteIfMatch(ctx context.Context, key, etag string) error {
	d, ok := s.client.(ConditionalDeleter)
	if !ok {
		return &store.Error{Op: "delete", Key: key, Err: store.ErrConditionUnsent}
	}
	return s.remove(ctx, key, true, func(ctx context.Context) error { return d.DeleteIfMatch(ctx, s.place.Prefix+key, etag) })
}

func (s *Store) remove(ctx context.Context, key string, conditional bool, send func(context.Context) error) error {
	ctx, r, err := s.begin(ctx, "delete", key, "s3:DeleteObject")
	if err != nil {
		return err
	}
	r.conditional, r.ifMatch = conditional, conditional
	covered := s.tidy.covered(key)
	err = s.once(ctx, r, func() error { return send(ctx) })
	if err != nil && r.answer.Status() == 404 && refused(r.answer).Code == "NoSuchKey" {
		return nil
	}
	if err != nil {
		return s.failed(ctx, r, err)
	}
	if r.answer.Header("X-Amz-Delete-Marker") == "true" {
		s.tidy.deleted(ctx, s, key, r.answer.Header("X-Amz-Version-Id"), covered)
	}
	return nil
}

// begin starts a request for a key.
func (s *Store) begin(ctx context.Context, op, key, permission string) (context.Context, request, error) {
	if err := store.CheckKey(key); err != nil {
		if op == "delete" {
			err = fmt.Errorf("%w: only the store's own tools can delete it, as: %s", err, s.place.deletion(key))
		}
		return ctx, request{}, &store.Error{Op: op, Key: key, Err: err}
	}
	ctx, answer := httptransport.Watch(ctx, s.place.Own)
	return ctx, request{op: op, key: key, permission: permission, answer: answer}, nil
}

// signable returns an error if there are no credentials: ErrConfig if there never were, and
// one that might pass if a request was signed before, or if only the service of credentials failed.
func (s *Store) signable(ctx context.Context) error {
	err := s.client.Signable(ctx)
	switch {
	case err == nil:
		s.signed.Store(true)
		return nil
	case ctx.Err() != nil:
		return credentialsError{fmt.Errorf("looking for credentials: %w", ctx.Err())}
	case s.signed.Load():
		return credentialsError{fmt.Errorf("the credentials that were used until now can't be renewed: %w", err)}
	case errors.As(err, new(PassingError)):
		return credentialsError{err}
	default:
		return credentialsError{fmt.Errorf("%w: %w", store.ErrConfig, err)}
	}
}

// credentialsError is the reason that a request wasn't sent.
type credentialsError struct{ error }

func (e credentialsError) Unwrap() error { return e.error }

// once sends a request, and once more if the refusal might not be repeated. A refused
// request did nothing.
func (s *Store) once(ctx context.Context, r request, send func() error) error {
	if err := s.signable(ctx); err != nil {
		return err
	}
	err := send()
	if err != nil && passing(r) {
		s.heard.Store(true)
		r.answer.Reset()
		err = send()
	}
	if err == nil && r.answer.Status() == 0 {
		return errors.New("the client made no request")
	}
	return err
}

// Answered reports whether a request was sent again after a refusal.
func (s *Store) Answered() bool { return s.heard.Load() }

// passing reports whether a refusal might not be repeated. One is that of the time in the
// signature: the library has learnt the server's from it. The other is MinIO's of a put at
// the moment in which another object, the last one below the same prefix, is deleted: its
// code is AccessDenied (github.com/minio/minio/issues/12914).
func passing(r request) bool {
	switch refused(r.answer).Code {
	case "RequestTimeTooSkewed":
		return true
	case "AccessDenied":
		return r.op == "put"
	default:
		return false
	}
}

// ETag returns an ETag without its quotes, which some servers send in one answer and not in
// another.
func ETag(s string) string { return strings.Trim(strings.TrimPrefix(s, "W/"), `"`) }
