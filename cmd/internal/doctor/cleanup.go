package doctor

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"
)

const (
	// haste is how long the cleanup goes on without a successful request.
	haste = 15 * time.Second
	// retell is the time between two reports of the cleanup's progress.
	retell = 5 * time.Second
)

// cleanUp deletes all scratch objects, even after the context has ended. Then it looks once for
// late puts, which the store applied after doctor had given them up. It empties and reports objects that
// it isn't allowed to delete. It goes on as long as it makes progress.
func (x *exam) cleanUp(ctx context.Context) {
	ctx, end := context.WithCancelCause(context.WithoutCancel(ctx))
	defer end(nil)
	stuck := time.AfterFunc(haste, func() { end(errStuck) })
	defer stuck.Stop()
	maps.DeleteFunc(x.puts, func(_ string, n int) bool { return n == 0 })
	left := x.erase(ctx, slices.Sorted(maps.Keys(x.puts)), stuck)
	if late := x.stillThere(ctx, left); len(late) > 0 {
		left = append(left, x.erase(ctx, late, stuck)...)
		left = append(left, x.stillThere(ctx, left)...)
	}
	slices.Sort(left)
	x.report.Left = left
}

// errStuck ends a cleanup that makes no progress.
var errStuck = fmt.Errorf("the store has deleted nothing for %v", haste)

// stillThere lists the scratch objects, except for the keys in left.
func (x *exam) stillThere(ctx context.Context, left []string) (keys []string) {
	if !x.granted(List) {
		return nil
	}
	objects, err := x.listAll(ctx, 0, x.scratch)
	if err != nil {
		return nil // rely on the answers to the deletions
	}
	for _, o := range objects {
		if !slices.Contains(left, o.Key) {
			keys = append(keys, o.Key)
		}
	}
	return keys
}

// erase deletes objects, or empties them if it isn't allowed to. It returns the keys of the objects that
// it hasn't deleted. Each success resets the timer.
func (x *exam) erase(ctx context.Context, keys []string, stuck *time.Timer) (left []string) {
	var mu sync.Mutex
	tried, told := 0, x.opts.Clock.Elapsed()
	_ = inParallel(ctx, len(keys), func(ctx context.Context, i int) error {
		err := x.remove(ctx, x.writer(), keys[i])
		if err == nil {
			keys[i] = ""
		} else if refused(err) {
			_, err = x.put(ctx, keys[i], "")
		}
		if err == nil {
			stuck.Reset(haste)
		}
		mu.Lock()
		defer mu.Unlock()
		tried++
		if now := x.opts.Clock.Elapsed(); now-told >= retell {
			told = now
			x.opts.Progress(fmt.Sprintf("cleaning up: %d of %d objects are left", len(keys)-tried, len(keys)))
		}
		return nil
	})
	return slices.DeleteFunc(keys, func(key string) bool { return key == "" })
}
