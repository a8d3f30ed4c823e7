package replock

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/repolock/repolock/internal/test/hookstore"
	"github.com/repolock/repolock/store"
	"github.com/repolock/repolock/store/mem"
)

// TestListingsEnd: for any listing of a store, every reader ends, with an error for a listing
// without an end. It never returns a result that only a whole listing allows.
func TestListingsEnd(t *testing.T) {
	for _, how := range hookstore.Ways {
		for name, do := range map[string]func(context.Context, *Locker) error{
			"exclusive": func(ctx context.Context, l *Locker) error { _, err := l.Exclusive(ctx, "x"); return err },
			"waiting": func(ctx context.Context, l *Locker) error {
				_, err := l.Exclusive(ctx, "x", Wait(time.Minute))
				return err
			},
			"status": func(ctx context.Context, l *Locker) error { _, err := l.Status(ctx); return err },
			"break":  func(ctx context.Context, l *Locker) error { _, err := l.Break(ctx, BreakOptions{}); return err },
		} {
			t.Run(how+"/"+name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					w := newWorld(t, mem.Options{})
					for i := range 4 { // empty flags, which block no acquirer
						w.put(fmt.Sprint("index/lock.shared/", i), nil)
					}
					s := &hookstore.Unending{Store: w.mem, How: how, Most: 5000}
					l, err := New(s, Options{Clock: &machineClock{start: time.Now()}})
					if err != nil {
						t.Fatal(err)
					}
					if err := do(t.Context(), l); !errors.Is(err, store.ErrListing) {
						t.Errorf("after %d pages: %v", s.Pages(), err)
					}
				})
			})
		}
	}
}
