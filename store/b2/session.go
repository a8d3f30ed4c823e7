package b2

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"

	"github.com/Backblaze/blazer/base"

	"github.com/repolock/repolock/store"
)

// session is an authorization with the bucket and the upload URLs that were got
// under it. All but the pool never changes.
type session struct {
	authorization
	bucket  *base.Bucket
	uploads pool
}

// may says whether the key has a capability.
func (s *session) may(capability string) bool {
	return slices.Contains(s.APIInfo.Storage.Allowed.Capabilities, capability)
}

// covers says whether the key may be used for names that begin so.
func (s *session) covers(name string) error {
	if prefix := s.APIInfo.Storage.Allowed.Prefix; !strings.HasPrefix(name, prefix) {
		return fmt.Errorf("%w: the application key is restricted to names that begin with %q", store.ErrPermission, prefix)
	}
	return nil
}

// sessions has the session that is in use.
type sessions struct {
	// turn is held by who authorizes. It is a channel, since whoever waits for
	// it has a context that may end.
	turn    chan struct{}
	mu      sync.Mutex
	current *session
}

func newSessions() sessions { return sessions{turn: make(chan struct{}, 1)} }

// session gives the session in use, or a new one if there is none or if it is
// the one that the server no longer takes.
func (s *Store) session(ctx context.Context, refused *session) (*session, error) {
	if in := s.sessions.get(); in != nil && in != refused {
		return in, nil
	}
	select {
	case s.sessions.turn <- struct{}{}:
	case <-ctx.Done():
		return nil, store.Unreachable(ctx.Err())
	}
	defer func() { <-s.sessions.turn }()
	if in := s.sessions.get(); in != nil && in != refused {
		return in, nil // somebody else was faster
	}
	in, err := s.authorize(ctx)
	if err != nil {
		return nil, noSession{err}
	}
	s.sessions.mu.Lock()
	defer s.sessions.mu.Unlock()
	s.sessions.current = in
	return in, nil
}

func (s *sessions) get() *session {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.current
}

// Answered reports whether there was an authorization: then the server was reached, whatever
// became of the other requests.
func (s *Store) Answered() bool { return s.authorized.Load() }

// end has the next request begin a session.
func (s *sessions) end(in *session) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.current == in {
		s.current = nil
	}
}

// authorize begins a session: one request, and one more for the bucket's ID
// unless the key is restricted to it.
func (s *Store) authorize(ctx context.Context) (*session, error) {
	n := new(note)
	account, err := exchange(ctx, n, func(ctx context.Context) (*base.B2, error) {
		return base.AuthorizeAccount(ctx, s.keyID, s.key, base.SetAPIBase(s.endpoint), base.Transport(s.transport), base.UserAgent("repolock"))
	})
	if err != nil {
		return nil, refusedKey(err)
	}
	s.authorized.Store(true)
	in := &session{authorization: n.auth}
	n = new(note)
	if n.bucket, err = in.allowed(s.bucket); err != nil {
		return nil, err
	}
	buckets, err := exchange(ctx, n, func(ctx context.Context) ([]*base.Bucket, error) {
		return account.ListBuckets(ctx, s.bucket)
	})
	if err != nil {
		return nil, in.explain("listBuckets", err)
	}
	i := slices.IndexFunc(buckets, func(b *base.Bucket) bool { return b.Name == s.bucket })
	if i < 0 {
		return nil, fmt.Errorf("%w: there is no bucket %s in the account of the application key", store.ErrNotFound, s.bucket)
	}
	in.bucket = buckets[i]
	return in, nil
}

// allowed returns a bucket that the key is restricted to, by its name, and nil if the key
// isn't restricted to some.
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
			names = append(names, plain(b.Name, a.Token))
		}
	}
	switch {
	case len(names) == 0 && len(only) == 1:
		return nil, fmt.Errorf("%w: the bucket that the application key is restricted to is gone", store.ErrNotFound)
	case len(names) == 0:
		return nil, fmt.Errorf("%w: the buckets that the application key is restricted to are gone", store.ErrNotFound)
	case len(names) > maxNamed:
		names = append(names[:maxNamed], "…")
	}
	return nil, fmt.Errorf("%w: the application key is restricted to the bucket %s, and this is %s", store.ErrConfig, strings.Join(names, ", "), bucket)
}

// maxNamed is how many buckets a message names.
const maxNamed = 5

// call makes one request for a name, or for names that begin so, and makes it
// again under a new authorization if the server takes the old one no longer:
// tokens last a day.
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
		v, err := exchange(ctx, new(note), func(ctx context.Context) (T, error) { return send(ctx, in) })
		if err == nil {
			return v, nil
		}
		if !expired(err) || refused != nil {
			if asRefusal(err, http.StatusBadRequest, "bad_bucket_id") {
				s.sessions.end(in) // another one of its name may be made
			}
			return zero, in.explain(capability, err)
		}
		refused = in
	}
}
