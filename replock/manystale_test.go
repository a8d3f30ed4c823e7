package replock

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/repolock/repolock/internal/test/hookstore"
	"github.com/repolock/repolock/store"
	"github.com/repolock/repolock/store/mem"
)

// choosy deletes two of three keys in one request, and reports which.
type choosy struct{ *mem.Store }

func (s choosy) DeleteAll(ctx context.Context, keys []string) ([]bool, error) {
	deleted := make([]bool, len(keys))
	for i, key := range keys {
		if i%3 > 0 {
			deleted[i] = s.Delete(ctx, key) == nil
		}
	}
	return deleted, nil
}

// TestManyStaleAreDeletedFirst: whatever becomes of the requests to delete many stale locks, each
// of them is deleted before the acquirer passes, or the acquire fails.
func TestManyStaleAreDeletedFirst(t *testing.T) {
	batches := func(answer error) hookstore.Before {
		return func(_ context.Context, r hookstore.Request) error {
			if r.Op == "delete all" {
				return answer
			}
			return nil
		}
	}
	for name, c := range map[string]struct {
		hook   hookstore.Before
		choosy bool
	}{
		"good":                  {},
		"some are left out":     {choosy: true},
		"the request is denied": {hook: batches(store.ErrPermission)},
		"… isn't known":         {hook: batches(store.ErrBatchUnsupported)},
		"… always fails":        {hook: batches(errOutage)},
		"deletes are denied":    {hook: mayNotDelete},
	} {
		for _, undeletable := range []bool{false, true} {
			t.Run(name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					w := newWorld(t, mem.Options{})
					w.flags(300)
					key := w.keys()[3]
					time.Sleep(2 * DefaultTTL)
					m := w.machine()
					if c.choosy || undeletable {
						m.hooks.Store = choosy{w.mem}
					}
					m.hooks.Before(func(ctx context.Context, r hookstore.Request) error {
						if undeletable && r.Key == key && (r.Op == "delete" || r.Op == "put") {
							return store.ErrPermission
						}
						if c.hook != nil {
							return c.hook(ctx, r)
						}
						return nil
					})
					k, err := m.Exclusive(t.Context(), "prune")
					if undeletable {
						if k != nil || !errors.Is(err, ErrUnsure) || !strings.Contains(err.Error(), key) {
							t.Errorf("one can't be deleted: %v, %v", k, err)
						}
						return
					}
					mustLock(t, k, err)
					for _, o := range stored(t, w) {
						if strings.Contains(o.Key, "lock.shared/") && o.Size > 0 {
							t.Errorf("%s was passed, and is there", o.Key)
						}
					}
					k.Release(t.Context())
				})
			})
		}
	}
}

func stored(t *testing.T, w *world) (objects []store.Object) {
	for cursor := ""; ; {
		page, err := w.mem.List(t.Context(), "", cursor)
		if err != nil {
			t.Fatal(err)
		}
		objects = append(objects, page.Objects...)
		if cursor = page.Next; cursor == "" {
			return objects
		}
	}
}

// TestLiveAmongManyStale: a live lock among thousands of stale ones, and no younger than they
// are, keeps an exclusive acquirer out, which then removes none of them.
func TestLiveAmongManyStale(t *testing.T) {
	do(t, func(t *testing.T, w *world) {
		w.flags(2000)
		holder := w.machine(func(o *Options) { o.TTL = MaxTTL; o.Look = MaxTTL })
		live, err := holder.Shared(t.Context(), "backup")
		mustLock(t, live, err)
		time.Sleep(time.Hour)
		before := len(w.keys())
		m := w.machine()
		k, err := m.Exclusive(t.Context(), "prune")
		if held := mustHeld(t, k, err); len(held.Holders) != 1 || held.Holders[0].ID != live.ID() {
			t.Errorf("held by %v", held.Holders)
		}
		if after := len(w.keys()); after != before || !alive(live) {
			t.Errorf("%d locks before, %d after; %v", before, after, context.Cause(live.Context()))
		}
		live.Release(t.Context())
	})
}

// TestFailingStoreEndsManyRequests: when a store fails, an acquirer that reads or removes thousands
// of locks sends no more requests than those that are under way, with their repetitions. None of
// the locks counts as read: when the store is back the next look reads them.
func TestFailingStoreEndsManyRequests(t *testing.T) {
	for _, op := range []string{"get", "delete"} {
		do(t, func(t *testing.T, w *world) {
			const n = 3000
			w.flags(n)
			time.Sleep(2 * DefaultTTL)
			m := w.machine()
			m.hooks.Before(func(_ context.Context, r hookstore.Request) error {
				if strings.HasPrefix(r.Op, op) && strings.Contains(r.Key, "lock.shared/") {
					return errOutage
				}
				return nil
			})
			if k, err := m.Exclusive(t.Context(), "prune"); k != nil || !errors.Is(err, errOutage) {
				t.Errorf("%s: %v", op, err)
			}
			if _, by := m.hooks.Count(); by[op] > 16*atOnce {
				t.Errorf("%s: %v", op, by)
			}
			m.hooks.Before(nil)
			k, err := m.Exclusive(t.Context(), "prune")
			mustLock(t, k, err)
			k.Release(t.Context())
			w.empty()
		})
	}
}

// TestUnreadIsReadAgain: a body that couldn't be read isn't taken for read by the next look.
func TestUnreadIsReadAgain(t *testing.T) {
	do(t, func(t *testing.T, w *world) {
		w.flags(200)
		time.Sleep(2 * DefaultTTL)
		m := w.machine()
		own, err := m.newTry(Exclusive, "prune", nothingYet())
		if err != nil {
			t.Fatal(err)
		}
		m.hooks.Before(func(_ context.Context, r hookstore.Request) error {
			if r.Op == "get" {
				return errOutage
			}
			return nil
		})
		known := memory{}
		if _, err := m.look(t.Context(), own, known); !errors.Is(err, errOutage) {
			t.Fatalf("%v", err)
		}
		m.hooks.Before(nil)
		f, err := m.look(t.Context(), own, known)
		if err != nil || len(f.stale) != 200 {
			t.Errorf("%d are stale, %v", len(f.stale), err)
		}
	})
}

// TestProgress: an acquirer that reads and removes many stale locks reports how far it is, and
// each lock that it has removed. It reports no progress with few.
func TestProgress(t *testing.T) {
	for _, n := range []int{manyLocks - 2, 2500} {
		for _, noBatch := range []bool{false, true} {
			synctest.Test(t, func(t *testing.T) { progresses(t, newWorld(t, mem.Options{NoBatch: noBatch}), n) })
		}
	}
}

func progresses(t *testing.T, w *world, n int) {
	w.flags(n)
	time.Sleep(2 * DefaultTTL)
	m := w.machine(func(o *Options) { o.TTL = MaxTTL })
	m.hooks.Before(func(context.Context, hookstore.Request) error { time.Sleep(100 * time.Millisecond); return nil })
	k, err := m.Exclusive(t.Context(), "prune")
	mustLock(t, k, err)
	m.hooks.Before(nil)
	k.Release(t.Context())
	m.Flush(t.Context())

	reaped, last := 0, map[EventKind]Event{}
	for _, e := range m.seen {
		was, again := last[e.Kind]
		last[e.Kind] = e
		reaped += len(e.Holders)
		if e.Kind != EventReading && e.Kind != EventReaping {
			continue
		}
		switch end := e.Kind == EventReaping && e.Done == n; {
		case n < manyLocks:
			t.Errorf("%d locks, and %s is reported", n, e.Kind)
		case !again && e.Done != 0:
			t.Errorf("%s begins with %d", e.Kind, e.Done)
		case again && (e.Done <= was.Done || !end && e.Time.Sub(was.Time) < progressPause):
			t.Errorf("%s: %d at %v, after %d at %v", e.Kind, e.Done, e.Time, was.Done, was.Time)
		case e.Kind == EventReaping && e.Total != n, e.Kind == EventReading && e.Total != 0:
			t.Errorf("%s: %d in all", e.Kind, e.Total)
		}
	}
	if reaped != n {
		t.Errorf("%d of %d are reported as removed", reaped, n)
	}
	if n >= manyLocks && (last[EventReaping].Done != n || last[EventReading].Done < n*9/10 || last[EventReading].Done > n) {
		t.Errorf("%d were read, and %d of %d removed", last[EventReading].Done, last[EventReaping].Done, n)
	}
	kinds := []EventKind{}
	for _, e := range m.seen {
		if !slices.Contains(kinds, e.Kind) {
			kinds = append(kinds, e.Kind)
		}
	}
	want := []EventKind{EventReading, EventReaping, EventReaped, EventAcquired, EventReleased}
	if n < manyLocks {
		want = want[2:]
	}
	if !slices.Equal(kinds, want) {
		t.Errorf("events %v, want %v", kinds, want)
	}
}
