package b2_test

import (
	"testing"

	"github.com/repolock/repolock/internal/test/fakeb2"
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
			storetest.Run(t, storetest.Config{New: newStores(opts), Again: again, Light: name != "as it is"})
		})
	}
}
