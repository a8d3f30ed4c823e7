package b2

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"

	"github.com/Backblaze/blazer/base"

	"github.com/repolock/repolock/internal/fault"
	"github.com/repolock/repolock/store"
	"github.com/repolock/repolock/store/internal/httptransport"
)

// session is an authorization, with the bucket and the upload URLs that belong to it. Only the pool of upload URLs
// changes.
type session struct {
	authorization
	bucket  *base.Bucket
	uploads pool
}

// authorization is the answer of b2_authorize_account, version 4.
type authorization struct {
	Token   string `json:"authorizationToken"`
	APIInfo struct {
		Storage struct {
			URL         string `json:"apiUrl"`
			DownloadURL string `json:"downloadUrl"`
			Allowed     struct {
				Buckets []struct {
					ID   string `json:"id"`
					Name string `json:"name"` // empty once the bucket is gone
				} `json:"buckets"` // empty if the key isn't restricted to buckets
				Prefix       string   `json:"namePrefix"`
				Capabilities []string `json:"capabilities"`
			} `json:"allowed"`
		} `json:"storageApi"`
	} `json:"apiInfo"`
	AccountID string `json:"accountId"`
}

// may reports whether the key has a capability.
func (s *session) may(capability string) bool {
	return slices.Contains(s.APIInfo.Storage.Allowed.Capabilities, capability)
}

// covers returns an error unless the key's prefix permits names that begin with name.
func (s *session) covers(name string) error {
	if prefix := s.APIInfo.Storage.Allowed.Prefix; !strings.HasPrefix(name, prefix) {
		return fmt.Errorf("%w: the application key is restricted to names that begin with %q", store.ErrPermission, prefix)
	}
	return nil
}

// session returns the present session. It begins a new one if there is none, or if the server has refused the present
// one.
func (s *Store) session(ctx context.Context, refused *session) (*session, error) {
	if in := s.current.Load(); in != nil && in != refused {
		return in, nil
	}
	select {
	case s.turn <- struct{}{}:
	case <-ctx.Done():
		return nil, store.Unreachable(ctx.Err())
	}
	defer func() { <-s.turn }()
	if in := s.current.Load(); in != nil && in != refused {
		return in, nil // another goroutine was faster
	}
	in, err := s.authorize(ctx)
	if err == nil {
		s.current.Store(in)
	}
	return in, err
}

// Answered reports whether the server has authorized this Store at least once. Then the server was reached, even if it
// has answered no other request.
func (s *Store) Answered() bool { return s.authorized.Load() }

// authorize begins a session. It sends one request, and one more for the bucket's ID unless the key is restricted to
// the bucket.
func (s *Store) authorize(ctx context.Context) (*session, error) {
	n := new(note)
	account, err := exchange(ctx, n, func(ctx context.Context) (*base.B2, error) {
		return base.AuthorizeAccount(ctx, s.keyID, s.key, base.SetAPIBase(s.endpoint), base.Transport(s.transport), base.UserAgent("repolock"))
	})
	if err != nil {
		return nil, n.refusal().refusedKey(err)
	}
	s.authorized.Store(true)
	in := &session{authorization: n.auth, uploads: make(pool, maxIdle)}
	n = new(note)
	if n.bucket, err = in.allowed(s.bucket); err != nil {
		return nil, err
	}
	buckets, err := exchange(ctx, n, func(ctx context.Context) ([]*base.Bucket, error) {
		return account.ListBuckets(ctx, s.bucket)
	})
	if err != nil {
		return nil, in.explain("listBuckets", n.refusal(), err)
	}
	i := slices.IndexFunc(buckets, func(b *base.Bucket) bool { return b.Name == s.bucket })
	if i < 0 {
		return nil, fmt.Errorf("%w: there is no bucket %s in the account of the application key", store.ErrNotFound, s.bucket)
	}
	in.bucket = buckets[i]
	return in, nil
}

// maxNamed is the number of buckets that an error message names.
const maxNamed = 5

// allowed returns the bucket of this name if the key is restricted to buckets, and nil if it isn't. It returns an error
// if the key is restricted to other buckets.
func (a *authorization) allowed(bucket string) (*bucketInfo, error) {
	only := a.APIInfo.Storage.Allowed.Buckets
	if len(only) == 0 {
		return nil, nil
	}
	var names []string
	for _, b := range only {
		if b.Name == bucket {
			return &bucketInfo{b.ID, b.Name}, nil
		}
		if b.Name != "" {
			names = append(names, spoken(b.Name, a.Token))
		}
	}
	switch {
	case len(names) == 0:
		return nil, fmt.Errorf("%w: each bucket that the application key is restricted to is gone", store.ErrNotFound)
	case len(names) > maxNamed:
		names = append(names[:maxNamed], "…")
	}
	return nil, fmt.Errorf("%w: the application key is restricted to the bucket %s, and this is %s", store.ErrConfig, strings.Join(names, ", "), bucket)
}

// call makes one request for a name, or for the names that begin with it. If the server no longer accepts the
// authorization, which lasts a day, call authorizes again and repeats the request.
func call[T any](ctx context.Context, s *Store, name, capability string, send func(context.Context, *session) (T, error)) (T, error) {
	var refused *session
	for {
		var zero T
		in, err := s.session(ctx, refused)
		if err != nil {
			return zero, err
		}
		if err := in.covers(name); err != nil {
			return zero, err
		}
		n := new(note)
		v, err := exchange(ctx, n, func(ctx context.Context) (T, error) { return send(ctx, in) })
		if err == nil {
			return v, nil
		}
		r := n.refusal()
		if !r.expired() || refused != nil {
			if r.is(http.StatusBadRequest, "bad_bucket_id") {
				s.current.CompareAndSwap(in, nil) // a bucket of this name can be made again, with another ID
			}
			return zero, fault.As(r.missing(), in.explain(capability, r, err))
		}
		refused = in
	}
}

// note has the facts of one exchange that blazer doesn't return. The context of the exchange carries it.
type note struct {
	*httptransport.Answer
	// err is why the transport itself refused the request or the answer.
	err error
	// host and token belong to the request. The answer might quote the token.
	host, token string
	// bucket, if set, replaces the answer to b2_list_buckets, which then isn't sent. blazer makes its bucket only from
	// that answer, and a key that is restricted to a bucket needn't have the permission to list it.
	bucket *bucketInfo
	// auth is the answer to an authorization.
	auth authorization
}

type bucketInfo struct {
	ID   string `json:"bucketId"`
	Name string `json:"bucketName"`
}

type noteKey struct{}

func noteOf(ctx context.Context) *note { return ctx.Value(noteKey{}).(*note) }

// maxAnswer is the number of bytes that we read of an answer. A page of the longest names is smaller.
const maxAnswer = 32 << 20

// exchange sends one request by calling send, and returns why it failed. It is needed because blazer keeps only an
// error's text.
func exchange[T any](ctx context.Context, n *note, send func(context.Context) (T, error)) (v T, err error) {
	watched, answer := httptransport.Watch(ctx, nil)
	answer.Whole(maxAnswer)
	n.Answer = answer
	if v, err = send(context.WithValue(watched, noteKey{}, n)); err == nil {
		return v, nil
	}
	var zero T
	return zero, n.reason(ctx, err)
}

// reason returns why a request failed: because of the context, the network, or the server.
func (n *note) reason(ctx context.Context, err error) error {
	switch {
	case ctx.Err() != nil:
		begun := n.Begun()
		n.Reset() // the end of the context counts, and not a refusal
		if begun {
			return ctx.Err()
		}
		return store.Unreachable(ctx.Err())
	case n.err != nil:
		return n.err
	case n.Err() != nil:
		return n.Unanswered(n.host, "check endpoint=", "have its authority trusted by this machine", n.Err())
	case n.refusal().status != 0:
		return n.refusal().err()
	}
	return fmt.Errorf("the answer can't be understood: %s", spoken(err.Error(), n.token))
}

// transport sends blazer's requests, and fills the notes in their contexts.
type transport struct{ next http.RoundTripper }

// pathAuthorize is the path of the authorization in the fourth version of the API. blazer asks for the third, which
// refuses keys that the fourth has made. The answer has all fields that blazer reads. The other calls are the same in
// both versions, and accept the token.
const pathAuthorize = "/b2api/v4/b2_authorize_account"

func (t *transport) RoundTrip(r *http.Request) (*http.Response, error) {
	n := noteOf(r.Context())
	n.host, n.token = r.URL.Host, r.Header.Get("Authorization")
	switch {
	case !secure(r.URL):
		n.err = fmt.Errorf("%w: the server names a URL without TLS: the application key would be sent in the clear", store.ErrConfig)
		return nil, n.err
	case n.bucket != nil && strings.HasSuffix(r.URL.Path, "/b2_list_buckets"):
		body, err := json.Marshal(map[string]any{"buckets": []any{n.bucket}})
		return &http.Response{StatusCode: http.StatusOK, Body: io.NopCloser(bytes.NewReader(body))}, err
	case r.URL.Path == "/b2api/v3/b2_authorize_account":
		r = r.Clone(r.Context())
		r.URL.Path = pathAuthorize
		res, err := t.next.RoundTrip(r)
		if n.err = n.authorized(); err == nil {
			err = n.err
		}
		return res, err
	}
	return t.next.RoundTrip(r)
}

// authorized parses the answer to an authorization. This is the first answer of a server, so it shows whether the
// server is B2 at all. blazer doesn't check that, and panics if the answer is null.
func (n *note) authorized() error {
	status := n.Status()
	switch {
	case status == 0, n.Err() != nil, httptransport.Passing(status), n.refusal().code != "":
		return nil
	case status == http.StatusOK:
		err := json.Unmarshal(n.Body(), &n.auth)
		if storage := &n.auth.APIInfo.Storage; err == nil && n.auth.Token != "" && storage.URL != "" && storage.DownloadURL != "" && len(storage.Allowed.Capabilities) > 0 {
			return nil
		}
	}
	return fmt.Errorf("%w: the endpoint %s isn't Backblaze B2: its answer doesn't have B2's form (%d %s)", store.ErrConfig, n.host, status, http.StatusText(status))
}

// post makes a call for which blazer has no function. An exchange must be under way. It parses the answer into result,
// unless result is nil.
func (s *Store) post(ctx context.Context, in *session, name string, params, result any) error {
	body, err := json.Marshal(params)
	if err != nil {
		return err
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, in.APIInfo.Storage.URL+"/b2api/v3/"+name, bytes.NewReader(body))
	if err != nil {
		return err
	}
	r.Header.Set("Authorization", in.Token)
	r.Header.Set("Content-Type", "application/json")
	res, err := s.transport.RoundTrip(r)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	switch {
	case res.StatusCode != http.StatusOK:
		return errors.New(res.Status)
	case result == nil:
		return nil
	}
	return json.NewDecoder(res.Body).Decode(result)
}
