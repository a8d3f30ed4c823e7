package b2

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/Backblaze/blazer/base"

	"github.com/repolock/repolock/internal/fault"
	"github.com/repolock/repolock/store"
)

// session is an authorization, with the bucket and the upload URLs that belong to it. Only the pool
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

// covers returns an error unless the key's prefix covers names that begin with name.
func (s *session) covers(name string) error {
	if prefix := s.APIInfo.Storage.Allowed.Prefix; !strings.HasPrefix(name, prefix) {
		return fmt.Errorf("%w: the application key is restricted to names that begin with %q", store.ErrPermission, prefix)
	}
	return nil
}

// session returns the session in use. It begins a new one if there is none, or if the
// server has refused this one.
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

// Answered reports whether there was an authorization. Then the server was reached, even if it has
// answered no other request.
func (s *Store) Answered() bool { return s.authorized.Load() }

// authorize begins a session: one request, and one more for the bucket's ID
// unless the key is restricted to it.
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

// maxNamed is the number of buckets that a message names.
const maxNamed = 5

// allowed returns a bucket that the key is restricted to, by its name. It returns nil if the key
// isn't restricted to buckets.
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

// call makes one request for a name, or for the names that begin with it. If the server no longer
// accepts the authorization, which lasts a day, call makes the request again under a new one.
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
