package b2_test

import (
	"testing"

	"github.com/repolock/repolock/internal/test/fakeb2"
	"github.com/repolock/repolock/store"
	"github.com/repolock/repolock/store/storetest"
)

func TestContract(t *testing.T) {
	for name, opts := range map[string]fakeb2.Options{
		"as it is":       {},
		"small pages":    {PageSize: 7, TokenUses: 300},
		"restricted key": {Keys: []fakeb2.Key{{ID: keyID, Secret: key, Buckets: []string{"b-bucket", bucket}, Prefix: prefix, Capabilities: least}}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var f *fake
			storetest.Run(t, storetest.Config{
				New:    func(t *testing.T) store.Store { f = serve(t, opts); return f.open(t) },
				Reopen: func(t *testing.T, _ store.Store) store.Store { return f.open(t) },
				Light:  name != "as it is",
			})
		})
	}
}
