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

// TestBadConditions: with IfMatchCreates a put with an ETag creates a missing object, but replaces none of
// another ETag. A store that ignores the condition deletes an object whatever its ETag.
func TestBadConditions(t *testing.T) {
	creating, ignoring := mem.New(mem.Options{IfMatchCreates: true}), mem.New(mem.Options{IfMatch: mem.Ignored})
	put := func() error {
		return assert.Err(creating.Put(t.Context(), "k", nil, store.PutOptions{IfMatch: "another"}))
	}
	assert.Equal(t, creating.Properties().IfMatch, store.Claimed, "declared as")
	assert.Is(t, put(), nil, "a missing object")
	assert.Is(t, put(), store.ErrPrecondition, "an object")
	assert.OK(t, assert.Err(ignoring.Put(t.Context(), "k", nil, store.PutOptions{})))
	assert.Is(t, ignoring.DeleteIfMatch(t.Context(), "k", "another"), nil)
}
