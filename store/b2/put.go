package b2

import (
	"bytes"
	"context"
	"crypto/sha1"
	"encoding/hex"
	"errors"
	"slices"

	"github.com/Backblaze/blazer/base"

	"github.com/repolock/repolock/store"
)

// Put uploads a version, and removes the version that this Store put under the key before, if the application key
// permits it. It returns store.ErrConditionUnsupported for a condition.
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

// remember records that a version was put. B2 can store two concurrent puts in either order. So remember compares this
// version with the last one of this Store, and returns the older, which the newer one covers.
func (s *Store) remember(name string, v version) (covered version, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.unsettled, name)
	old, ok := s.wrote[name]
	if !ok || old.time.Before(v.time) {
		s.wrote[name] = v
		return old, ok
	}
	return v, old.time.After(v.time)
}

// forget drops what this Store has recorded about a name that was deleted.
func (s *Store) forget(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.wrote, name)
	delete(s.unsettled, name)
}

// pool has the idle upload URLs. A URL can be used for one upload at a time.
type pool chan *base.URL

// maxIdle is the number of URLs that a pool can hold.
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

// empty drops all URLs, after the server has refused one as too old.
func (p pool) empty() {
	for p.take() != nil {
	}
}

// upload makes a new version. It drops the upload URL after any error. Backblaze requires that after an error answer.
// If only the context has ended, the upload might still be under way.
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

// replacement is a version that this Store has put, and the version that it must replace.
type replacement struct {
	put      version
	replaces string // the ID of that version
}

// replace uploads a version, and then looks which version is directly below it. If that isn't the version to replace,
// another client has deleted or replaced the object meanwhile. Then replace takes its own version back.
//
// If the look fails, the replacement stays unsettled. The next replace of this version settles it first.
func (s *Store) replace(ctx context.Context, name string, body []byte, etag string) (version, error) {
	s.mu.Lock()
	last, ok := s.unsettled[name]
	s.mu.Unlock()
	if ok && last.put.id == etag {
		if err := s.settle(ctx, name, last); err != nil {
			return version{}, err
		}
	}
	v, err := s.upload(ctx, name, body)
	if err != nil {
		return version{}, err
	}
	r := replacement{v, etag}
	s.mu.Lock()
	s.unsettled[name] = r
	s.mu.Unlock()
	return v, s.settle(ctx, name, r)
}

// settle looks whether the new version is directly above the one that it replaces. If it is, settle remembers the new
// version, and removes the versions below it. If not, settle takes the new version back, and returns ErrPrecondition.
//
// A concurrent deletion might have listed the versions before ours existed. It deletes the replaced version too, and B2
// reports success to only one of the two requests. If the deletion has succeeded, the object was deleted before it was
// replaced. If this Put has succeeded, the deletion notices that, and also deletes our version.
func (s *Store) settle(ctx context.Context, name string, r replacement) error {
	versions, err := s.versions(ctx, name)
	if err != nil {
		return err
	}
	at := slices.IndexFunc(versions, func(v version) bool { return v.id == r.put.id })
	if at < 0 {
		s.forget(name)
		return store.ErrPrecondition // another client has deleted it
	}
	may, err := s.mayRemove(ctx)
	if err != nil {
		return err
	}
	below := versions[at+1:]
	if len(below) == 0 || below[0].id != r.replaces {
		return s.takeBack(ctx, name, versions, at, may)
	}
	if may {
		// The oldest version goes first, so that readers see none of them. If a version can't be removed, it stays
		// below the new one, and the next settle removes it.
		for _, older := range slices.Backward(below[1:]) {
			_, _ = s.removeVersion(ctx, name, older)
		}
		removed, err := s.removeVersion(ctx, name, below[0])
		if err == nil && !removed { // a deletion has removed it
			return s.takeBack(ctx, name, versions[:at+1], at, may)
		}
	}
	s.remember(name, r.put)
	return nil
}

// takeBack removes the version at an index of versions, and then returns ErrPrecondition. If it can't remove versions,
// it covers this one with a hide marker, or with a copy of the version below.
func (s *Store) takeBack(ctx context.Context, name string, versions []version, at int, may bool) error {
	var err error
	if may {
		if _, err = s.removeVersion(ctx, name, versions[at]); errors.Is(err, store.ErrPermission) {
			may = false
		}
	}
	if !may {
		switch below := versions[at+1:]; {
		case at > 0: // another client's version covers it already
			err = nil
		case len(below) == 0 || below[0].hides:
			err = s.hide(ctx, name)
		default:
			err = s.copyVersion(ctx, name, below[0])
		}
	}
	if err != nil {
		return err
	}
	s.forget(name)
	return store.ErrPrecondition
}

// copyVersion copies a version. The copy is then the newest version.
func (s *Store) copyVersion(ctx context.Context, name string, v version) error {
	_, err := call(ctx, s, name, "writeFiles", func(ctx context.Context, in *session) (struct{}, error) {
		return struct{}{}, s.post(ctx, in, "b2_copy_file", map[string]any{"sourceFileId": v.id, "fileName": name}, nil)
	})
	if errors.Is(err, errNoObject) {
		return s.hide(ctx, name) // another client has deleted it meanwhile
	}
	return err
}
