package backend_test

import (
	"errors"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/repolock/repolock/examples/backend"
	"github.com/repolock/repolock/store"
	"github.com/repolock/repolock/store/storetest"
)

func open(t *testing.T, path string) *backend.Store {
	t.Helper()
	s, err := backend.Open(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

// TestContract: the backend keeps the whole contract, with two handles on one database.
func TestContract(t *testing.T) {
	var paths sync.Map
	storetest.Run(t, storetest.Config{
		New: func(t *testing.T) store.Store {
			path := filepath.Join(t.TempDir(), "a repository?.db")
			s := open(t, path)
			paths.Store(s, path)
			return s
		},
		Reopen: func(t *testing.T, s store.Store) store.Store {
			path, _ := paths.Load(s)
			return open(t, path.(string))
		},
		Precision: time.Millisecond,
	})
}

// TestErrors: errors have the meaning that the store's contract gives them.
func TestErrors(t *testing.T) {
	other := filepath.Join(t.TempDir(), "other")
	if err := os.WriteFile(other, []byte("this isn't a database, and long enough to be seen as none"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{other, filepath.Join(other, "below")} {
		if _, err := backend.Open(t.Context(), path); !errors.Is(err, store.ErrConfig) {
			t.Errorf("%s: %v", path, err)
		}
	}
}
