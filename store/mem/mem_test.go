package mem_test

import (
	"testing"
	"time"

	"github.com/repolock/repolock/internal/test/assert"
	"github.com/repolock/repolock/store"
	"github.com/repolock/repolock/store/mem"
	"github.com/repolock/repolock/store/storetest"
)

func TestContract(t *testing.T) {
	for name, opts := range map[string]mem.Options{
		"default":  {},
		"poor":     {Precision: time.Second, PageSize: 10, NoTime: true, IfAbsent: mem.Lacked, IfMatch: mem.Lacked, NoBatch: true},
		"versions": {IfAbsent: mem.Lacked, IfMatch: mem.Lacked, Versions: true},
		"ignoring": {IfAbsent: mem.Ignored, IfMatch: mem.Ignored},
		"claiming": {Precision: time.Second, IfAbsent: mem.Claimed, IfMatch: mem.Claimed},
		"creating": {Precision: time.Second, IfAbsent: mem.Claimed, IfMatch: mem.Claimed, IfMatchCreates: true},
	} {
		t.Run(name, func(t *testing.T) {
			storetest.Run(t, storetest.Config{
				New:       func(*testing.T) store.Store { return mem.New(opts) },
				Precision: opts.Precision,
			})
		})
	}
}

// TestIfMatchCreates: with this option a put with If-Match creates a missing object, but heeds the ETag of
// an existing one. The store declares the condition as claimed.
func TestIfMatchCreates(t *testing.T) {
	s := mem.New(mem.Options{IfMatchCreates: true})
	assert.Equal(t, s.Properties().IfMatch, store.Claimed, "declared as")
	put := func(body, etag string) (store.Object, error) {
		return s.Put(t.Context(), "k", []byte(body), store.PutOptions{IfMatch: etag})
	}
	created, err := put("1", "no such etag")
	assert.OK(t, err)
	assert.Is(t, assert.Err(put("2", "no such etag")), store.ErrPrecondition, "of another version")
	assert.Is(t, assert.Err(put("3", created.ETag)), nil, "of this version")
	body, _, err := s.Get(t.Context(), "k", 10)
	assert.That(t, string(body) == "3" && err == nil, "%q %v is stored", body, err)
}

// TestIgnoredDeleteIfMatch: a store that ignores the condition deletes an object whatever its ETag.
func TestIgnoredDeleteIfMatch(t *testing.T) {
	s := mem.New(mem.Options{IfMatch: mem.Ignored})
	assert.OK(t, assert.Err(s.Put(t.Context(), "k", []byte("1"), store.PutOptions{})))
	assert.Is(t, s.DeleteIfMatch(t.Context(), "k", "another"), nil)
	_, _, err := s.Get(t.Context(), "k", 10)
	assert.Is(t, err, store.ErrNotFound)
}
