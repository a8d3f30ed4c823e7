package storetest

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/repolock/repolock/store"
)

// patience is how often in a row the ETag that an object has may be refused: some servers
// do that while another put is under way.
const patience = 1000

// Increment adds one to the number in an object, by conditional puts, until one
// is taken. It reports whether one was, and gives up with an error on a store that refuses
// the right ETag again and again. It is exported for tests of several processes.
func Increment(ctx context.Context, s store.Store, key string) (bool, error) {
	last, refused := "", 0
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
		if obj.ETag != last {
			last, refused = obj.ETag, 0
		}
		if refused++; refused == patience {
			return false, fmt.Errorf("If-Match with the ETag %s that the object has was refused %d times: %w", last, refused, err)
		}
	}
}
