package b2

import (
	"bytes"
	"context"
	"crypto/sha1"
	"encoding/hex"

	"github.com/Backblaze/blazer/base"

	"github.com/repolock/repolock/store"
)

// Put uploads a version, and removes the one that this Store put under the key before, if
// the application key permits it. It returns store.ErrConditionUnsupported for a condition.
func (s *Store) Put(ctx context.Context, key string, body []byte, opts store.PutOptions) (store.Object, error) {
	v, err := s.put(ctx, key, body, opts)
	if err != nil {
		return store.Object{}, failed("put", key, err)
	}
	return v.object(key), nil
}

func (s *Store) put(ctx context.Context, key string, body []byte, opts store.PutOptions) (version, error) {
	name, err := s.name(ctx, key)
	if err != nil {
		return version{}, err
	}
	if opts.IfAbsent || opts.IfMatch != "" {
		return version{}, store.ErrConditionUnsupported
	}
	if opts.Replaces != "" {
		return s.replace(ctx, name, body, opts.Replaces)
	}
	v, err := s.upload(ctx, name, body)
	if err != nil {
		return version{}, err
	}
	if old, ok := s.remember(name, v); ok {
		// If this fails, the old version stays, covered by the new one.
		if may, _ := s.mayRemove(ctx); may {
			_, _ = s.removeVersion(ctx, name, old)
		}
	}
	return v, nil
}

// remember notes that a version was put, and returns the version of this Store that one of the two
// covers: B2 can store two concurrent puts in either order.
func (s *Store) remember(name string, v version) (covered version, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.owed, name)
	old, ok := s.wrote[name]
	if !ok || old.time.Before(v.time) {
		s.wrote[name] = v
		return old, ok
	}
	return v, old.time.After(v.time)
}

// forget drops the notes of a name that was deleted.
func (s *Store) forget(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.wrote, name)
	delete(s.owed, name)
}

// pool has the idle upload URLs. Each takes one upload at a time.
type pool chan *base.URL

// maxIdle bounds the URLs in a pool.
const maxIdle = 32

// take returns a URL, or nil if none is idle.
func (p pool) take() *base.URL {
	select {
	case u := <-p:
		return u
	default:
		return nil
	}
}

func (p pool) put(u *base.URL) {
	select {
	case p <- u:
	default: // it is full
	}
}

// empty drops the URLs, after the server has refused one as too old.
func (p pool) empty() {
	for p.take() != nil {
	}
}

// upload makes a new version. It drops a URL after any error: Backblaze requires that after
// an error of its own, and an upload whose context has ended might still be under way.
func (s *Store) upload(ctx context.Context, name string, body []byte) (version, error) {
	for again := false; ; again = true {
		in, u, err := s.uploadURL(ctx, name)
		if err != nil {
			return version{}, err
		}
		n := new(note)
		f, err := exchange(ctx, n, func(ctx context.Context) (*base.File, error) {
			sum := sha1.Sum(body)
			return u.UploadFile(ctx, bytes.NewReader(body), len(body), name, "application/octet-stream", hex.EncodeToString(sum[:]), nil)
		})
		if err == nil {
			in.uploads.put(u)
			return versionOf(f), nil
		}
		if again || !n.refusal().expired() {
			return version{}, in.explain("writeFiles", n.refusal(), err)
		}
		in.uploads.empty()
	}
}

// uploadURL returns an upload URL and the session that it belongs to.
func (s *Store) uploadURL(ctx context.Context, name string) (*session, *base.URL, error) {
	in, err := s.session(ctx, nil)
	if err != nil {
		return nil, nil, err
	}
	if err := in.covers(name); err != nil {
		return nil, nil, err
	}
	if u := in.uploads.take(); u != nil {
		return in, u, nil
	}
	u, err := call(ctx, s, name, "writeFiles", func(ctx context.Context, now *session) (*base.URL, error) {
		in = now
		return now.bucket.GetUploadURL(ctx)
	})
	return in, u, err
}
