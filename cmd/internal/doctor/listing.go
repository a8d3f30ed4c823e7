package doctor

import (
	"cmp"
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/repolock/repolock/internal/clock"
	"github.com/repolock/repolock/store"
)

const (
	// puts is the number of new objects, each followed by a listing.
	puts = 200
	// steady is the number of objects that exist from the beginning, and are overwritten
	// all the time.
	steady = 4
)

// listAfterWrite tries out the guarantee that safety needs: a listing that starts after the answer to a
// put shows the object, whichever client put it. It must also show an object that is being overwritten.
func (x *exam) listAfterWrite(ctx context.Context) (Check, error) {
	prefix := x.scratch + "list/"
	w := &witness{}
	for i := range steady {
		key := fmt.Sprintf("%ssteady-%d", prefix, i)
		if _, err := x.put(ctx, key, "0"); err != nil {
			return Check{}, err
		}
		w.expect(key)
	}
	stop := x.overwriting(ctx, w.keys)
	err := inParallel(ctx, puts, func(ctx context.Context, i int) error {
		key := fmt.Sprintf("%snew-%03d", prefix, i)
		if _, err := x.put(ctx, key, "new"); err != nil {
			return err
		}
		want := w.expect(key)
		objects, err := x.listAll(ctx, i+1, prefix)
		if err != nil {
			return err
		}
		w.judge(want, objects)
		return nil
	})
	return w.check(stop()), err
}

// overwriting overwrites objects until stop is called. stop waits for the last put, so that none is under way during
// the cleanup, and returns the number of puts.
func (x *exam) overwriting(ctx context.Context, keys []string) (stop func() int) {
	if !x.granted(Overwrite) {
		return func() int { return 0 }
	}
	var stopped atomic.Bool
	done := make(chan int)
	go func() {
		n := 0
		for i := 0; !stopped.Load() && ctx.Err() == nil; i++ {
			if x.putOnce(ctx, keys[i%len(keys)], fmt.Sprint(i), store.PutOptions{}) == nil {
				n++
			} else {
				// Some stores limit the writes of one key per second.
				_ = clock.Sleep(ctx, x.opts.Clock, 500*time.Millisecond)
			}
		}
		done <- n
	}()
	return func() int { stopped.Store(true); return <-done }
}

// witness has the keys that listings must show, and counts the missing ones.
type witness struct {
	mu       sync.Mutex
	keys     []string // of answered puts; the steady ones come first, and none is ever removed
	listings int
	missed   int    // missing new objects
	gaps     int    // missing steady objects
	first    string // the first missing key
}

// expect adds a key, and returns the keys that a listing which starts now must show.
func (w *witness) expect(key string) []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.keys = append(w.keys, key)
	return w.keys[:len(w.keys):len(w.keys)]
}

func (w *witness) judge(want []string, objects []store.Object) {
	shown := make(map[string]bool, len(objects))
	for _, o := range objects {
		shown[o.Key] = true
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.listings++
	for i, key := range want {
		if shown[key] {
			continue
		}
		w.first = cmp.Or(w.first, key)
		if i < steady {
			w.gaps++
		} else {
			w.missed++
		}
	}
}

func (w *witness) check(overwrites int) Check {
	c := Check{Result: OK, Counts: map[string]int{
		"puts": len(w.keys), "listings": w.listings, "overwrites": overwrites, "missed": w.missed, "missed_while_overwritten": w.gaps,
	}}
	c.Detail = fmt.Sprintf("%d listings showed all objects that were written before the listing began, even if they were being overwritten (%d times)",
		w.listings, overwrites)
	if w.missed+w.gaps > 0 {
		c.Result = Fail
		c.Detail = fmt.Sprintf("%d listings missed %d objects that were written before the listing began, and %d objects that were being overwritten; the first was %q",
			w.listings, w.missed, w.gaps, w.first)
	}
	return c
}
