package storetest

import (
	"context"
	"errors"
	"strconv"

	"github.com/repolock/repolock/store"
)

// Increment adds one to the number in an object, by conditional puts, until one
// is taken. It is exported for tests of several processes.
func Increment(ctx context.Context, s store.Store, key string) (bool, error) {
	for {
		body, obj, err := s.Get(ctx, key, limit)
		if err != nil {
			return false, err
		}
		n, err := strconv.Atoi(string(body))
		if err != nil {
			return false, err
		}
		_, err = s.Put(ctx, key, []byte(strconv.Itoa(n+1)), store.PutOptions{IfMatch: obj.ETag})
		if !errors.Is(err, store.ErrPrecondition) {
			return err == nil, err
		}
	}
}
