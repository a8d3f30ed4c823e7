// Package requests sends one request of each kind to a store, for tests of errors.
package requests

import (
	"context"

	"github.com/repolock/repolock/store"
)

// maxBody is larger than any body of these tests, in bytes.
const maxBody = 1 << 20

// Each sends a request of each kind for a key, and returns their errors.
func Each(ctx context.Context, s store.Store, key string) map[string]error {
	_, put := s.Put(ctx, key, []byte("new"), store.PutOptions{})
	_, _, get := s.Get(ctx, key, maxBody)
	_, list := s.List(ctx, key, "")
	return map[string]error{"put": put, "get": get, "list": list, "delete": s.Delete(ctx, key)}
}
