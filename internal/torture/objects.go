package torture

import "context"

// Objects are what the children of a run put and delete. A request that has returned must
// show in those that follow.
type Objects interface {
	Put(ctx context.Context, key string, body []byte) error
	// Delete is no error if there is no such object.
	Delete(ctx context.Context, key string) error
	// Keys returns all keys with a prefix.
	Keys(ctx context.Context, prefix string) ([]string, error)
}
