package s3api

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/repolock/repolock/store"
)

// tidy removes the versions that this store has written to a versioned bucket. Otherwise the bucket would keep a
// version for every refresh of a lock. It removes each by its ID, so it removes no version of another writer, and
// restores no deleted object. If a removal fails, the version stays, and readers don't see it. If removals aren't
// permitted, tidy stops trying.
type tidy struct {
	mu      sync.Mutex
	own     map[string][]string // versions by key, newest last
	refused bool
}

// covered returns the versions of a key whose puts have been answered by now. A put that begins later covers them. A
// put that has begun earlier might not.
func (t *tidy) covered(key string) []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Clone(t.own[key])
}

// wrote records a new version, and removes the versions that it covers.
func (t *tidy) wrote(ctx context.Context, s *Store, key, version string, covered []string) {
	if version == "" || version == "null" {
		return
	}
	t.mu.Lock()
	t.own[key] = append(t.own[key], version)
	if t.refused {
		t.own[key] = []string{version} // the others can't be removed
		covered = nil
	}
	t.mu.Unlock()
	ctx, cancel := briefly(ctx)
	defer cancel()
	for _, v := range covered {
		if !t.remove(ctx, s, key, v) {
			return // the next put tries again
		}
		t.mu.Lock()
		t.own[key] = slices.DeleteFunc(t.own[key], func(own string) bool { return own == v })
		t.mu.Unlock()
	}
}

// deleted removes the covered versions after a deletion has put a delete marker over them. If the marker then hides
// nothing, deleted removes the marker too.
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
	r := &request{op: "list", key: key, permission: "s3:ListBucketVersions", root: "ListVersionsResult"}
	name := s.place.Prefix + key
	listed, err := s.do(ctx, r, func(ctx context.Context) error { return s.client.Versions(ctx, name) })
	if err != nil {
		return // the marker stays: listing versions might not be permitted
	}
	versions := slices.DeleteFunc(listed.named("Version", marked), func(v entry) bool { return v.Key != name })
	if slices.ContainsFunc(versions, func(v entry) bool { _, err := v.time(); return err != nil }) {
		return
	}
	slices.SortStableFunc(versions, newerFirst)
	at := slices.IndexFunc(versions, func(v entry) bool { return v.VersionId == marker })
	if at >= 0 && (at == len(versions)-1 || versions[at+1].XMLName.Local == marked) {
		t.remove(ctx, s, key, marker)
	}
}

// marked is the name of a delete marker's element.
const marked = "DeleteMarker"

// newerFirst compares two versions of a key, because some servers list versions and markers separately. If a version
// and a marker have the same age, the marker counts as the newer one, so that it stays.
func newerFirst(a, b entry) int {
	timeA, _ := a.time()
	timeB, _ := b.time()
	latest := strings.Compare(b.IsLatest, a.IsLatest) // "true" and "false"
	return cmp.Or(latest, timeB.Compare(timeA), strings.Compare(a.XMLName.Local, b.XMLName.Local))
}

// tidyTimeout bounds the removal of old versions.
const tidyTimeout = 2 * time.Second

// briefly returns a context for the removals that ends after tidyTimeout, or after half of the remaining time. So the
// request before them still succeeds.
func briefly(ctx context.Context) (context.Context, context.CancelFunc) {
	timeout := tidyTimeout
	if end, ok := ctx.Deadline(); ok {
		timeout = min(timeout, time.Until(end)/2)
	}
	return context.WithTimeout(ctx, timeout)
}

// remove deletes a version for good, and reports whether it could. It records a refusal: the permission is missing, or
// Object Lock keeps the version, to which MinIO answers InvalidRequest.
func (t *tidy) remove(ctx context.Context, s *Store, key, version string) bool {
	r := &request{op: "delete", key: key, permission: "s3:DeleteObjectVersion"}
	_, err := s.do(ctx, r, func(ctx context.Context) error { return s.client.Delete(ctx, s.place.Prefix+key, version, "") })
	if err == nil {
		return true
	}
	if errors.Is(err, store.ErrPermission) || r.refusal().Code == "InvalidRequest" {
		t.mu.Lock()
		defer t.mu.Unlock()
		t.refused = true
	}
	return false
}
