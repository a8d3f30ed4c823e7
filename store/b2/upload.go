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

// pool has upload URLs that are in no use: each is good for one upload at a time.
type pool struct {
	mu   sync.Mutex
	idle []*base.URL
}

// maxIdle is as many as anybody keeps busy.
const maxIdle = 32

func (p *pool) take() *base.URL {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.idle) == 0 {
		return nil
	}
	last := len(p.idle) - 1
	u := p.idle[last]
	p.idle = p.idle[:last]
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

// upload makes a new version. A URL that anything went wrong with isn't used
// again: Backblaze asks for that after an error of its own, and an upload that
// nobody waits for any more may still be under way there.
func (s *Store) upload(ctx context.Context, name string, body []byte) (version, error) {
	for again := false; ; again = true {
		in, u, err := s.uploadURL(ctx, name)
		if err != nil {
			return version{}, err
		}
		f, err := exchange(ctx, new(note), func(ctx context.Context) (*base.File, error) {
			sum := sha1.Sum(body)
			return u.UploadFile(ctx, bytes.NewReader(body), len(body), name, "application/octet-stream", hex.EncodeToString(sum[:]), nil)
		})
		if err == nil {
			in.uploads.put(u)
			return versionOf(f), nil
		}
		if again || !expired(err) {
			return version{}, in.explain("writeFiles", err)
		}
		in.uploads.empty()
	}
}

// upload URLs come with the session that they were got under.
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

// object is a version as a store tells of it.
func (v version) object(key string) store.Object {
	return store.Object{Key: key, ETag: v.id, Size: v.size, ModTime: v.time}
}
