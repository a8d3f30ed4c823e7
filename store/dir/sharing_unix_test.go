//go:build unix

package dir

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/repolock/repolock/internal/test/assert"
	"github.com/repolock/repolock/store"
)

// TestGetsShareADirectory: the Gets of one store.Sharing open a directory once. When they are done, a Get opens it
// anew.
func TestGetsShareADirectory(t *testing.T) {
	s := opened(t)
	for _, key := range []string{"index/a", "index/b", "other/a"} {
		create(t, s, key)
	}
	get := func(ctx context.Context, key string) error { return got(s.Get(ctx, key, 1)) }
	ctx, done := store.SharingGets(t.Context())
	for _, key := range []string{"index/a", "other/a"} {
		assert.OK(t, get(ctx, key))
	}
	moved := filepath.Join(s.path, "moved")
	assert.OK(t, os.Rename(filepath.Join(s.path, "index"), moved))
	assert.OK(t, get(ctx, "index/b"))
	assert.Is(t, get(t.Context(), "index/b"), store.ErrNotFound)
	kept := store.Shares(ctx).Kept(place{s, "index"}).(*directory)

	// A file that isn't in the shared directory can be in another one that has replaced it.
	create(t, s, "index/c")
	assert.OK(t, get(ctx, "index/c"))
	assert.Is(t, get(ctx, "index/d"), store.ErrNotFound)

	done()
	assert.Is(t, get(ctx, "index/b"), store.ErrNotFound)
	assert.OK(t, get(ctx, "index/c"))
	_, err := kept.Lstat("a")
	assert.Is(t, err, os.ErrClosed)
	assert.That(t, store.Shares(ctx).Kept(place{s, "index"}) == nil, "a directory stays open after the Gets")
}

// TestOtherStoresShareNothing: two stores have the same keys in different directories.
func TestOtherStoresShareNothing(t *testing.T) {
	one, two := opened(t), opened(t)
	create(t, one, "index/a")
	create(t, two, "index/b")
	ctx, done := store.SharingGets(t.Context())
	defer done()
	assert.OK(t, got(one.Get(ctx, "index/a", 1)))
	assert.OK(t, got(two.Get(ctx, "index/b", 1)))
	assert.Is(t, got(two.Get(ctx, "index/a", 1)), store.ErrNotFound)
}

func got(_ []byte, _ store.Object, err error) error { return err }
