package memory_test

import (
	"testing"
	"time"

	"github.com/repolock/repolock/internal/test/assert"
	"github.com/repolock/repolock/store"
	"github.com/repolock/repolock/store/memory"
	"github.com/repolock/repolock/store/storetest"
)

func TestContract(t *testing.T) {
	for name, opts := range map[string]memory.Options{
		"default":  {},
		"poor":     {Precision: time.Second, PageSize: 10, NoTime: true, IfAbsent: memory.Lacked, IfMatch: memory.Lacked, NoBatch: true},
		"versions": {IfAbsent: memory.Lacked, IfMatch: memory.Lacked, Versions: true},
		"ignoring": {IfAbsent: memory.Ignored, IfMatch: memory.Ignored},
		"claiming": {Precision: time.Second, IfAbsent: memory.Claimed, IfMatch: memory.Claimed},
		"creating": {Precision: time.Second, IfAbsent: memory.Claimed, IfMatch: memory.Claimed, IfMatchCreates: true},
	} {
		t.Run(name, func(t *testing.T) {
			storetest.Run(t, storetest.Config{
				New:       func(*testing.T) store.Store { return memory.New(opts) },
				Precision: opts.Precision,
			})
		})
	}
}

// TestBadConditions: with IfMatchCreates a put with an ETag creates a missing object, but replaces none of
// another ETag. A store that ignores the condition deletes an object whatever its ETag.
func TestBadConditions(t *testing.T) {
	creating, ignoring := memory.New(memory.Options{IfMatchCreates: true}), memory.New(memory.Options{IfMatch: memory.Ignored})
	put := func() error {
		return assert.Err(creating.Put(t.Context(), "k", nil, store.PutOptions{IfMatch: "another"}))
	}
	assert.Equal(t, creating.Properties().IfMatch, store.Claimed, "declared as")
	assert.Is(t, put(), nil, "a missing object")
	assert.Is(t, put(), store.ErrPrecondition, "an object")
	assert.OK(t, assert.Err(ignoring.Put(t.Context(), "k", nil, store.PutOptions{})))
	assert.Is(t, ignoring.DeleteIfMatch(t.Context(), "k", "another"), nil)
}
