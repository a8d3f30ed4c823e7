package replock

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/repolock/repolock/internal/test/hookstore"
	"github.com/repolock/repolock/store"
	"github.com/repolock/repolock/store/mem"
)

// TestRefusalOfAnUnconditionalClaimEndsTheAcquire: lock.exclusive that is put without a condition,
// after the store has refused to keep one, says nothing about other acquirers if it is refused. The
// acquire ends at once with that error, and takes down what the put might have stored.
func TestRefusalOfAnUnconditionalClaimEndsTheAcquire(t *testing.T) {
	for _, refusal := range []error{store.ErrPrecondition, store.ErrConditionUnsupported} {
		t.Run(refusal.Error(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, mem.Options{IfAbsent: mem.Claimed})
				a := w.machine()
				var sent atomic.Int32
				a.hooks.After(func(_ context.Context, r hookstore.Request, err error) error {
					switch {
					case r.Op != "put" || r.Key != "index/lock.exclusive":
						return err
					case r.Opts.IfAbsent:
						_ = w.mem.Delete(context.Background(), r.Key)
						return store.ErrConditionUnsupported
					case sent.Add(1) == 1:
						return errOutage // its answer is lost
					}
					return refusal
				})
				start := time.Now()
				k, err := a.Exclusive(t.Context(), "prune")
				if k != nil {
					defer k.Release(context.Background())
				}
				if k != nil || !errors.Is(err, refusal) {
					t.Errorf("got the lock: %t, %v", k != nil, err)
				}
				if took := time.Since(start); took > 5*time.Second {
					t.Errorf("the acquire took %v", took)
				}
				if keys := w.keys(); len(keys) > 0 {
					t.Errorf("it left %v", keys)
				}
			})
		})
	}
}
