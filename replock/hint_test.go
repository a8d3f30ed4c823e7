package replock

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/repolock/repolock/internal/test/hookstore"
	"github.com/repolock/repolock/store"
)

// watched makes a machine's store give hints of deletions.
func (w *world) watched() *machine {
	m := w.machine()
	m.hooks.Watched = true
	return m
}

// TestHintLetsAWaiterIn: a store's hint lets a waiter in at the release, however long it has waited.
func TestHintLetsAWaiterIn(t *testing.T) {
	for _, other := range []Mode{Shared, Exclusive} {
		for _, mode := range []Mode{Shared, Exclusive} {
			if other == Shared && mode == Shared {
				continue
			}
			do(t, func(t *testing.T, w *world) {
				k, err := w.machine().acquire(t.Context(), other, "x")
				mustLock(t, k, err)
				wait := w.watched().wants(t, mode, Forever)
				time.Sleep(10 * time.Minute)
				wait.waits(t)
				began := time.Now()
				k.Release(t.Context())
				lock := wait.got(t)
				if took := time.Since(began); took > 0 {
					t.Errorf("%v after %v: let in %v after the release", mode, other, took)
				}
				lock.Release(t.Context())
				w.empty()
			})
		}
	}
}

// TestReleasedBeforeTheHints: a lock that is released between a waiter's look and the begin of the
// store's hints is noticed at once.
func TestReleasedBeforeTheHints(t *testing.T) {
	do(t, func(t *testing.T, w *world) {
		k, err := w.machine().Exclusive(t.Context(), "x")
		mustLock(t, k, err)
		time.Sleep(time.Minute)
		m := w.watched()
		m.hooks.Before(first("delete", "lock.shared", func(hookstore.Request) error { return k.Release(t.Context()) }))
		began := time.Now()
		lock := m.wants(t, Shared, Forever).got(t)
		if took := time.Since(began); took > 0 {
			t.Errorf("let in after %v", took)
		}
		lock.Release(t.Context())
		w.empty()
	})
}

// TestHintsAreBounded: in a storm of hints a waiter sends no more than a get per second, beside
// its polls, and a few at first.
func TestHintsAreBounded(t *testing.T) {
	do(t, func(t *testing.T, w *world) {
		k, err := w.machine().Shared(t.Context(), "backup")
		mustLock(t, k, err)
		time.Sleep(time.Minute)
		m := w.watched()
		wait := m.wants(t, Exclusive, Forever)
		m.hooks.Count()
		for i := range 60_000 {
			key := fmt.Sprintf("index/lock.shared/19990101T000000.%09dZ-x", i)
			w.put(key, nil)
			if err := w.mem.Delete(t.Context(), key); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Millisecond)
		}
		_, by := m.hooks.Count()
		if by["get"] < 60 || by["get"] > hintBurst+60+1 || by["list"] > 30 {
			t.Errorf("in a minute: %v", by)
		}
		wait.waits(t)
		k.Release(t.Context())
		wait.got(t).Release(t.Context())
		w.empty()
	})
}

// TestHintDecidesNothing: a hint, and a read that doesn't find the lock, let no waiter in while a
// listing shows the lock.
func TestHintDecidesNothing(t *testing.T) {
	eachMode(t, func(t *testing.T, w *world, mode Mode) {
		k, err := w.machine().Exclusive(t.Context(), "x")
		mustLock(t, k, err)
		time.Sleep(time.Minute)
		m := w.watched()
		wait := m.wants(t, mode, Forever)
		m.hooks.Before(func(_ context.Context, r hookstore.Request) error {
			if r.Op == "get" {
				return &store.Error{Op: r.Op, Key: r.Key, Err: store.ErrNotFound}
			}
			return nil
		})
		m.hooks.Count()
		for range 600 {
			w.put("index/lock.shared/x", nil)
			if err := w.mem.Delete(t.Context(), "index/lock.shared/x"); err != nil {
				t.Fatal(err)
			}
			time.Sleep(100 * time.Millisecond)
			wait.waits(t)
		}
		if _, by := m.hooks.Count(); by["list"] > hintBurst+2*60 {
			t.Errorf("in a minute: %v", by)
		}
		m.hooks.Before(nil)
		k.Release(t.Context())
		wait.got(t).Release(t.Context())
	})
}

// TestMissedHint: a waiter whose hints fail to come polls.
func TestMissedHint(t *testing.T) {
	eachMode(t, func(t *testing.T, w *world, mode Mode) {
		k, err := w.machine().Exclusive(t.Context(), "x")
		mustLock(t, k, err)
		m := w.machine()
		m.store = silent{m.store}
		wait := m.wants(t, mode, Forever)
		time.Sleep(10 * time.Minute)
		wait.waits(t)
		k.Release(t.Context())
		began := time.Now()
		lock := wait.got(t)
		if took := time.Since(began); took > 2*lastPoll {
			t.Errorf("let in after %v", took)
		}
		lock.Release(t.Context())
		w.empty()
	})
}

// silent is a store whose hints never come.
type silent struct{ store.Store }

func (silent) Watch(context.Context, string) (<-chan struct{}, error) {
	return make(chan struct{}), nil
}

// TestBudget: a burst, and then one per second.
func TestBudget(t *testing.T) {
	var b budget
	for i := range hintBurst {
		if wait := b.take(time.Hour); wait != 0 {
			t.Errorf("the %dth waits %v", i, wait)
		}
	}
	for _, now := range []time.Duration{time.Hour, time.Hour + time.Second, time.Hour + 2*time.Second} {
		if wait := b.take(now); wait != time.Second {
			t.Errorf("at %v it waits %v", now, wait)
		}
	}
	if wait := b.take(2 * time.Hour); wait != 0 {
		t.Errorf("after an hour it waits %v", wait)
	}
}
