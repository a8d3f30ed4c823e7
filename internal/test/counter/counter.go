// Package counter counts in an object by conditional puts, for tests of several processes.
package counter

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/repolock/repolock/store"
)

// maxRefusals limits the refusals of the current ETag in a row. Some servers refuse it while another put is
// under way.
const maxRefusals = 1000

// maxBody is the limit of a number's body.
const maxBody = 1 << 10

// Increment adds one to the number in an object, by conditional puts, until the store
// takes one. It reports whether it did, and returns an error for a store that refuses the
// right ETag again and again.
func Increment(ctx context.Context, s store.Store, key string) (bool, error) {
	last, refused := "", 0
	for {
		body, obj, err := s.Get(ctx, key, maxBody)
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
		if refused++; refused == maxRefusals {
			return false, fmt.Errorf("If-Match with the ETag %s that the object has was refused %d times: %w", last, refused, err)
		}
	}
}
