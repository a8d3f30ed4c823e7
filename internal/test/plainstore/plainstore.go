// Package plainstore lets the torture package work on the objects of a store.
package plainstore

import (
	"context"

	"github.com/repolock/repolock/store"
)

// Objects are the objects of a store, without conditions, pages and properties.
type Objects struct{ store.Store }

// Put puts an object.
func (o Objects) Put(ctx context.Context, key string, body []byte) error {
	_, err := o.Store.Put(ctx, key, body, store.PutOptions{})
	return err
}

// Keys returns all keys with a prefix.
func (o Objects) Keys(ctx context.Context, prefix string) ([]string, error) {
	return store.Keys(ctx, o.Store, prefix)
}
