package b2

import (
	"bytes"
	"context"
	"crypto/sha1"
	"encoding/hex"
	"sync"

	"github.com/Backblaze/blazer/base"

	"github.com/repolock/repolock/store"
)

// pool has the idle upload URLs: each takes one upload at a time.
type pool struct {
	mu   sync.Mutex
	idle []*base.URL
}

// maxIdle is the number of URLs that are kept.
const maxIdle = 32

func (p *pool) take() (u *base.URL) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if last := len(p.idle) - 1; last >= 0 {
		u, p.idle = p.idle[last], p.idle[:last]
	}
	return u
}

func (p *pool) put(u *base.URL) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.idle) < maxIdle {
		p.idle = append(p.idle, u)
	}
}

// empty drops the URLs, after one of them was found to be too old.
func (p *pool) empty() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.idle = nil
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
		if again || !n.refusal.expired() {
			return version{}, in.explain("writeFiles", n.refusal, err)
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

// object returns a version as an object.
func (v version) object(key string) store.Object {
	return store.Object{Key: key, ETag: v.id, Size: v.size, ModTime: v.time}
}
