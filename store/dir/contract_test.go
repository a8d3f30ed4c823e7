package dir_test

import (
	"sync"
	"testing"

	"github.com/repolock/repolock/internal/test/assert"
	"github.com/repolock/repolock/store"
	"github.com/repolock/repolock/store/dir"
	"github.com/repolock/repolock/store/storetest"
)

func TestContract(t *testing.T) {
	var paths sync.Map // of each store's directory
	open := func(t *testing.T, path string) store.Store {
		s, err := dir.Open(t.Context(), path, dir.Options{})
		assert.OK(t, err)
		paths.Store(s, path)
		return s
	}
	storetest.Run(t, storetest.Config{
		New: func(t *testing.T) store.Store { return open(t, t.TempDir()) },
		Again: func(t *testing.T, s store.Store) store.Store {
			path, _ := paths.Load(s)
			return open(t, path.(string))
		},
	})
}
