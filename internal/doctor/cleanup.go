package doctor

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// haste is how long cleaning up may go on without an object being deleted, and retell how
// often it says how many are left.
const (
	haste  = 15 * time.Second
	retell = 5 * time.Second
)

// ledger is every key that may have been written.
type ledger struct {
	mu   sync.Mutex
	puts map[string]int // that weren't refused
}

// sending notes a put before it is sent; refused says that it wrote nothing.
func (l *ledger) sending(key string) { l.count(key, 1) }
func (l *ledger) refused(key string) { l.count(key, -1) }

func (l *ledger) count(key string, n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.puts == nil {
		l.puts = make(map[string]int)
	}
	l.puts[key] += n
}

// keys are in order.
func (l *ledger) keys() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	var keys []string
	for key, n := range l.puts {
		if n > 0 {
			keys = append(keys, key)
		}
	}
	slices.Sort(keys)
	return keys
}

// cleanUp deletes all that was written, the context being over or not, and looks
// whether a put that got no answer has left something after all. What may not be
// deleted is emptied, and reported. It goes on for as long as it gets on.
func (x *exam) cleanUp(ctx context.Context) {
	ctx, over := context.WithCancelCause(context.WithoutCancel(ctx))
	defer over(nil)
	x.goesOn = x.untilStuck(ctx, over)
	left := x.erase(ctx, x.written.keys())
	for again := true; ; again = false {
		late := x.stillThere(ctx, left)
		if len(late) == 0 {
			break
		}
		if !again {
			left = append(left, late...)
			break
		}
		left = append(left, x.erase(ctx, late)...)
	}
	slices.Sort(left)
	x.report.Left = left
}

// untilStuck ends a context when what it returns isn't called for so long.
func (x *exam) untilStuck(ctx context.Context, end context.CancelCauseFunc) (goesOn func()) {
	moves := make(chan struct{})
	go func() {
		for {
			select {
			case <-moves:
			case <-x.clock.After(haste):
				end(errStuck)
				return
			case <-ctx.Done():
				return
			}
		}
	}()
	return func() {
		select {
		case moves <- struct{}{}:
		case <-ctx.Done():
		}
	}
}

// errStuck: the store deletes nothing any more.
var errStuck = fmt.Errorf("the store has deleted nothing for %v", haste)

// leftOver is an error if objects are left that may be deleted.
func (x *exam) leftOver() error {
	if n := len(x.report.Left); n > 0 && len(x.lacking([]string{Delete})) == 0 {
		return fmt.Errorf("%d objects below %q are left, because the store didn't delete them in time", n, x.scratch)
	}
	return nil
}

// stillThere lists the scratch objects that aren't known to be left.
func (x *exam) stillThere(ctx context.Context, left []string) (keys []string) {
	if c, _ := x.report.Check(List); c.Result != OK {
		return nil
	}
	objects, err := x.listAll(ctx, 0, x.scratch)
	if err != nil {
		return nil // what was deleted was answered
	}
	for _, o := range objects {
		if !slices.Contains(left, o.Key) {
			keys = append(keys, o.Key)
		}
	}
	return keys
}

// erase deletes keys, or empties those that may not be deleted, and gives those
// that may be left.
func (x *exam) erase(ctx context.Context, keys []string) (left []string) {
	deleted := make([]bool, len(keys))
	var tried atomic.Int64
	told := x.clock.Elapsed()
	var telling sync.Mutex
	_ = parallel(ctx, len(keys), func(ctx context.Context, i int) error {
		err := x.remove(ctx, keys[i])
		deleted[i] = err == nil
		if refused(err) {
			_, err = x.put(ctx, keys[i], "")
		}
		if err == nil {
			x.goesOn()
		}
		n := tried.Add(1)
		telling.Lock()
		defer telling.Unlock()
		if now := x.clock.Elapsed(); now-told >= retell {
			told = now
			x.progress(fmt.Sprintf("cleaning up: %d of %d objects are left", int64(len(keys))-n, len(keys)))
		}
		return nil
	})
	for i, key := range keys {
		if !deleted[i] {
			left = append(left, key)
		}
	}
	return left
}
