package s3api

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/repolock/repolock/store"
	"github.com/repolock/repolock/store/internal/web"
)

// tidy removes what this store has written from a versioned bucket, which would
// else keep every renewal of a lock. Only versions that this store wrote go, each
// by its id, so nothing of anybody else's is ever removed, and nothing that was
// deleted is uncovered. It is done for tidiness: what fails stays, as a version
// that nobody sees, and what isn't allowed isn't tried again.
type tidy struct {
	mu      sync.Mutex
	own     map[string][]string // versions by key, the newest last
	refused bool
}

// covered are the versions of a key that were put, and answered, by now. What is
// put after this covers them; of two puts at once nobody knows which is the newer.
func (t *tidy) covered(key string) []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Clone(t.own[key])
}

// wrote notes a new version, and removes those that it covers.
func (t *tidy) wrote(ctx context.Context, s *Store, key, version string, covered []string) {
	if version == "" || version == "null" {
		return
	}
	t.mu.Lock()
	t.own[key] = append(t.own[key], version)
	if t.refused {
		t.own[key] = []string{version} // the others stay anyway
		covered = nil
	}
	t.mu.Unlock()
	ctx, cancel := briefly(ctx)
	defer cancel()
	for _, v := range covered {
		if !t.remove(ctx, s, key, v) {
			return // until the next time
		}
		t.mu.Lock()
		t.own[key] = slices.DeleteFunc(t.own[key], func(own string) bool { return own == v })
		t.mu.Unlock()
	}
}

// deleted removes what lies under the marker that a deletion has put, and the
// marker itself if nothing that it hides is left.
func (t *tidy) deleted(ctx context.Context, s *Store, key, marker string, covered []string) {
	t.mu.Lock()
	t.own[key] = slices.DeleteFunc(t.own[key], func(own string) bool { return slices.Contains(covered, own) })
	if len(t.own[key]) == 0 {
		delete(t.own, key)
	}
	refused := t.refused
	t.mu.Unlock()
	if refused || marker == "" || len(covered) == 0 {
		return
	}
	ctx, cancel := briefly(ctx)
	defer cancel()
	for _, v := range covered {
		if !t.remove(ctx, s, key, v) {
			return
		}
	}
	listing, _ := web.Watch(ctx)
	versions, err := s.client.Versions(listing, s.place.Prefix+key)
	if err != nil {
		return // not allowed, perhaps: the marker stays
	}
	below := versions[:0]
	seen := false
	for _, v := range versions {
		switch {
		case v.Key != s.place.Prefix+key:
		case v.ID == marker:
			seen = true
		case seen:
			below = append(below, v)
		}
	}
	if seen && (len(below) == 0 || below[0].Marker) {
		t.remove(ctx, s, key, marker)
	}
}

// briefly bounds what is done for tidiness alone: what it follows was done, and must
// not be given up because of it.
func briefly(ctx context.Context) (context.Context, context.CancelFunc) {
	timeout := tidyTimeout
	if end, ok := ctx.Deadline(); ok {
		timeout = min(timeout, time.Until(end)/2)
	}
	return context.WithTimeout(ctx, timeout)
}

// remove deletes a version for good.
func (t *tidy) remove(ctx context.Context, s *Store, key, version string) bool {
	ctx, answer := web.Watch(ctx)
	err := s.client.Delete(ctx, s.place.Prefix+key, version)
	if err != nil {
		t.judge(s.failed(ctx, request{op: "delete", key: key, permission: "s3:DeleteObjectVersion", answer: answer}, err), answer)
	}
	return err == nil
}

// judge notes that the permission is lacking, or that Object Lock keeps the version
// from being deleted, for which MinIO's word is InvalidRequest.
func (t *tidy) judge(err error, answer *web.Answer) {
	if errors.Is(err, store.ErrPermission) || refused(answer).Code == "InvalidRequest" {
		t.mu.Lock()
		defer t.mu.Unlock()
		t.refused = true
	}
}
