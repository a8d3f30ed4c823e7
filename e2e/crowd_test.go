//go:build unix && minio

package e2e

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/repolock/repolock/replock"
)

// referee checks that no holder is in together with an exclusive one.
type referee struct {
	t      *testing.T
	mu     sync.Mutex
	in     map[*replock.Lock]bool
	grants map[replock.Mode]int
	lost   int
}

func newReferee(t *testing.T) *referee {
	return &referee{t: t, in: map[*replock.Lock]bool{}, grants: map[replock.Mode]int{}}
}

func (r *referee) enter(k *replock.Lock) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.grants[k.Mode()]++
	r.in[k] = true
	for other := range r.in {
		exclusive := other.Mode() == replock.Exclusive || k.Mode() == replock.Exclusive
		if other != k && exclusive && other.Context().Err() == nil && k.Context().Err() == nil {
			r.t.Errorf("%s %s and %s %s are both in", k.Mode(), k.ID(), other.Mode(), other.ID())
		}
	}
}

// granted reports whether any lock was granted.
func (r *referee) granted() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.grants) > 0
}

func (r *referee) leave(k *replock.Lock) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if k.Context().Err() != nil {
		r.lost++
	}
	delete(r.in, k)
}

func (r *referee) String() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return fmt.Sprintf("granted %d shared, %d exclusive, of which %d were lost", r.grants[replock.Shared], r.grants[replock.Exclusive], r.lost)
}

// take takes the lock in a mode.
func take(ctx context.Context, l *replock.Locker, mode replock.Mode) (*replock.Lock, error) {
	if mode == replock.Shared {
		return l.Shared(ctx, "backup")
	}
	return l.Exclusive(ctx, "prune")
}

// crowd makes clients take locks at random until a time, and longer if none has got one by
// then. They hold a lock mostly for a moment, sometimes past a refresh.
func crowd(t *testing.T, r *referee, clients []*replock.Locker, until time.Time) {
	var wg sync.WaitGroup
	for _, l := range clients {
		wg.Go(func() {
			for time.Now().Before(until) || !r.granted() && time.Now().Before(until.Add(hang)) {
				mode := replock.Shared
				if rand.IntN(2) == 0 {
					mode = replock.Exclusive
				}
				hold := rand.N(300 * time.Millisecond)
				if rand.IntN(10) == 0 {
					hold += ttl
				}
				turn(t.Context(), r, l, mode, hold)
				time.Sleep(rand.N(2 * time.Second))
			}
		})
	}
	wg.Wait()
}

// turn is one client's turn: it takes a lock if it can, and holds it for a while.
func turn(ctx context.Context, r *referee, l *replock.Locker, mode replock.Mode, hold time.Duration) {
	k, err := take(ctx, l, mode)
	if err != nil {
		return
	}
	r.enter(k)
	select {
	case <-k.Context().Done():
	case <-time.After(hold):
	}
	r.leave(k)
	_ = k.Release(ctx) // an object that it can't delete expires
}
