package dir

import (
	"testing"

	"github.com/repolock/repolock/internal/test/assert"
	"github.com/repolock/repolock/store"
	"github.com/repolock/repolock/store/storetest"
)

func TestContract(t *testing.T) {
	open := func(t *testing.T, path string) store.Store {
		s, err := Open(t.Context(), path)
		assert.OK(t, err)
		return s
	}
	storetest.Run(t, storetest.Config{
		New:    func(t *testing.T) store.Store { return open(t, t.TempDir()) },
		Reopen: func(t *testing.T, s store.Store) store.Store { return open(t, s.(*Store).path) },
	})
}
