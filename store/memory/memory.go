// Package memory is a store in memory, for tests. It keeps the whole contract of [store.Store]. Its options remove
// abilities that some real stores don't have.
//
// It blocks only on a sync.Mutex, so it works inside testing/synctest.
package memory

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/repolock/repolock/store"
)

// Store is a store in memory. Its methods can be called concurrently. A copy of the pointer refers to the same objects.
type Store struct {
	opts Options

	mu      sync.Mutex
	objects map[string]object
	keys    []string // keys of all objects, in byte order, so that List reads one page and not all keys
	deleted map[string]bool
	watches map[*watch]bool
}

type object struct {
	body []byte
	info store.Object
}

var (
	_ store.Store        = (*Store)(nil)
	_ store.BatchDeleter = (*Store)(nil)
	_ store.Watcher      = (*Store)(nil)
)

// New returns an empty store.
func New(opts Options) *Store {
	if opts.Now == nil {
		opts.Now = time.Now
	}
	if opts.PageSize <= 0 {
		opts.PageSize = 1000
	}
	return &Store{opts: opts, objects: make(map[string]object), deleted: make(map[string]bool), watches: make(map[*watch]bool)}
}

// Properties returns the properties that follow from the options.
func (s *Store) Properties() store.Properties {
	return store.Properties{
		Name:          "memory",
		IfAbsent:      s.opts.ifAbsent(),
		IfMatch:       s.opts.ifMatch(),
		DeleteIfMatch: s.opts.IfMatch.declared(),
		StoreClock:    !s.opts.NoStoreClock,
		MachineClock:  s.opts.MachineClock,
		PutCreates:    s.opts.PutCreates,
	}
}

// Put stores a copy of body. It ignores PutOptions.Durable.
func (s *Store) Put(ctx context.Context, key string, body []byte, opts store.PutOptions) (store.Object, error) {
	if err := check(ctx, key); err != nil {
		return store.Object{}, failed("put", key, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	old, found := s.objects[key]
	if err := s.allowed(key, old, found, opts); err != nil {
		return store.Object{}, failed("put", key, err)
	}
	info := store.Object{
		Key:     key,
		ETag:    etag(body),
		Size:    int64(len(body)),
		ModTime: s.now().Truncate(s.opts.Precision),
	}
	if !found {
		at, _ := slices.BinarySearch(s.keys, key)
		s.keys = slices.Insert(s.keys, at, key)
	}
	delete(s.deleted, key)
	s.objects[key] = object{body: slices.Clone(body), info: info}
	if s.opts.NoTime || s.opts.UntimedPuts {
		info.ModTime = time.Time{}
	}
	if !s.opts.NoTime {
		info.Now = s.now()
	}
	return info, nil
}

// allowed returns the error of a Put over the stored object, or nil.
func (s *Store) allowed(key string, old object, found bool, opts store.PutOptions) error {
	if opts.IfAbsent {
		marked := s.opts.Markers && s.deleted[key]
		if err := s.opts.IfAbsent.outcome(!found && !marked); err != nil {
			return err
		}
	}
	if s.opts.Versions && opts.Replaces != "" && (!found || old.info.ETag != opts.Replaces) {
		return store.ErrPrecondition
	}
	if opts.IfMatch != "" {
		met := found && old.info.ETag == opts.IfMatch || !found && s.opts.IfMatchCreates
		return s.opts.IfMatch.outcome(met)
	}
	return nil
}

// Get returns a copy of the body.
func (s *Store) Get(ctx context.Context, key string, limit int64) ([]byte, store.Object, error) {
	if err := check(ctx, key); err != nil {
		return nil, store.Object{}, failed("get", key, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	o, found := s.objects[key]
	switch {
	case !found:
		return nil, store.Object{}, failed("get", key, store.ErrNotFound)
	case o.info.Size > limit:
		return nil, store.Object{}, failed("get", key, store.ErrTooLarge)
	}
	return append([]byte{}, o.body...), o.info, nil
}

// List returns a page. The cursor is the last key of the page before.
func (s *Store) List(ctx context.Context, prefix, cursor string) (store.Page, error) {
	if err := ctx.Err(); err != nil {
		return store.Page{}, failed("list", prefix, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	var page store.Page
	if !s.opts.NoTime {
		page.Now = s.now()
	}
	first, _ := slices.BinarySearch(s.keys, prefix)
	after, found := slices.BinarySearch(s.keys, cursor)
	if found {
		after++
	}
	for _, key := range s.keys[max(first, after):] {
		if !strings.HasPrefix(key, prefix) {
			break
		}
		if n := len(page.Objects); n == s.opts.PageSize {
			page.Next = page.Objects[n-1].Key
			break
		}
		page.Objects = append(page.Objects, s.objects[key].info)
	}
	return page, nil
}

// Delete removes the object if there is one.
func (s *Store) Delete(ctx context.Context, key string) error { return s.delete(ctx, key, "") }

// DeleteIfMatch deletes an object. It treats the condition as Options.IfMatch defines it for a Put.
func (s *Store) DeleteIfMatch(ctx context.Context, key, etag string) error {
	return s.delete(ctx, key, etag)
}

// DeleteAll removes objects, unless Options.NoBatch is set.
func (s *Store) DeleteAll(ctx context.Context, keys []string) ([]bool, error) {
	deleted := make([]bool, len(keys))
	err := ctx.Err()
	if s.opts.NoBatch {
		err = store.ErrBatchUnsupported
	}
	if err != nil {
		return deleted, failed("delete", strings.Join(keys[:min(1, len(keys))], ""), err)
	}
	for i, key := range keys[:min(len(keys), store.MaxBatch)] {
		deleted[i] = s.delete(context.WithoutCancel(ctx), key, "") == nil
	}
	return deleted, nil
}

func (s *Store) delete(ctx context.Context, key, ifMatch string) error {
	if err := check(ctx, key); err != nil {
		return failed("delete", key, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	old, found := s.objects[key]
	if ifMatch != "" {
		if err := s.opts.IfMatch.outcome(found && old.info.ETag == ifMatch); err != nil {
			return failed("delete", key, err)
		}
	}
	if found {
		delete(s.objects, key)
		if s.opts.Markers {
			s.deleted[key] = true
		}
		at, _ := slices.BinarySearch(s.keys, key)
		s.keys = slices.Delete(s.keys, at, at+1)
		s.hint(key)
	}
	return nil
}

// watch is one Watch under way.
type watch struct {
	prefix string
	hints  chan struct{}
}

// Watch sends a value as soon as an object under the prefix is deleted.
func (s *Store) Watch(ctx context.Context, prefix string) (<-chan struct{}, error) {
	if err := ctx.Err(); err != nil {
		return nil, failed("watch", prefix, err)
	}
	w := &watch{prefix, make(chan struct{}, 1)}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.watches[w] = true
	context.AfterFunc(ctx, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.watches, w)
	})
	return w.hints, nil
}

// hint notifies the watches whose prefix a deleted key has. The caller holds mu.
func (s *Store) hint(key string) {
	for w := range s.watches {
		if !strings.HasPrefix(key, w.prefix) {
			continue
		}
		select {
		case w.hints <- struct{}{}:
		default: // the channel already has a hint
		}
	}
}

// now returns the store's time without a monotonic reading, because no object store sends one.
func (s *Store) now() time.Time { return s.opts.Now().Round(0) }

// etag returns a hash of the body alone, as S3 does: the same body always has the same ETag.
func etag(body []byte) string {
	sum := sha256.Sum256(body)
	return hex.EncodeToString(sum[:16])
}

func check(ctx context.Context, key string) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	return store.CheckKey(key)
}

func failed(op, key string, err error) error {
	return &store.Error{Op: op, Key: key, Err: err}
}
