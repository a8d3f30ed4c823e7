package replock

import (
	"context"
	"fmt"
	"maps"
	"testing"
	"testing/synctest"
	"time"

	"github.com/repolock/repolock/store/mem"
)

// flags puts n live shared flags of other holders into the store.
func (w *world) flags(n int) {
	m := w.machine()
	for i := range n {
		t, err := m.newTry(Shared, "backup", nothingYet())
		if err != nil {
			w.t.Fatal(err)
		}
		m.date(t)
		w.put(fmt.Sprintf("index/lock.shared/19990101T000000.%09dZ-%s", i, t.id), t.body.encode())
	}
}

// trips counts round trips in sequence: a request that starts while another one is under way
// is part of its round trip. Each request takes a second.
func (m *machine) trips(f func()) (trips time.Duration, requests int, by map[string]int) {
	m.hooks.Count()
	m.hooks.Before(takesASecond)
	start := time.Now()
	f()
	trips = time.Since(start)
	requests, by = m.hooks.Count()
	m.hooks.Before(nil)
	return trips, requests, by
}

// TestRequestCounts: each step of a lock's life takes these round trips and requests. Without
// If-Match a renewal takes a look before its puts, and a release one before its deletes unless
// the lock was looked at just before.
func TestRequestCounts(t *testing.T) {
	type cost struct{ trips, requests int }
	for _, c := range []struct {
		name                              string
		mode                              Mode
		opts                              mem.Options
		acquire, renew, release, unlooked cost
	}{
		{"shared", Shared, mem.Options{}, cost{2, 2}, cost{1, 1}, cost{1, 1}, cost{1, 1}},
		{"exclusive", Exclusive, mem.Options{}, cost{2, 3}, cost{1, 2}, cost{1, 2}, cost{1, 2}},
		{"shared, no conditions", Shared, lacking, cost{2, 2}, cost{2, 2}, cost{1, 1}, cost{1, 1}},
		{"exclusive, no conditions", Exclusive, lacking, cost{4, 4}, cost{2, 4}, cost{1, 2}, cost{2, 3}},
	} {
		for _, n := range []int{0, 1, 1000, 10_000} {
			if c.mode == Exclusive && n > 0 {
				continue // refused: TestRequestCountsRefused
			}
			t.Run(fmt.Sprintf("%s, %d flags", c.name, n), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					w := newWorld(t, c.opts)
					w.flags(n)
					m := w.machine()
					check := func(what string, want cost, f func()) {
						t.Helper()
						trips, requests, by := m.trips(f)
						if trips != time.Duration(want.trips)*time.Second || requests != want.requests {
							t.Errorf("%s: %v round trips, %d requests %v, want %d/%d", what, trips, requests, by, want.trips, want.requests)
						}
					}
					var k *Lock
					check("acquire", c.acquire, func() {
						var err error
						k, err = m.acquire(t.Context(), c.mode, "x")
						mustLock(t, k, err)
					})
					time.Sleep(4 * time.Second) // the first look is over
					check("renew", c.renew, func() {
						if err := k.Renew(t.Context()); err != nil {
							t.Error(err)
						}
					})
					pages := min(1+n/1000, 2) // our own flag is on the second page
					check("confirm", cost{pages, pages}, func() {
						if err := k.Check(t.Context()); err != nil {
							t.Error(err)
						}
					})
					release := func() {
						if err := k.Release(t.Context()); err != nil {
							t.Error(err)
						}
					}
					check("release", c.release, release)
					k, err := m.acquire(t.Context(), c.mode, "x")
					mustLock(t, k, err)
					time.Sleep(8 * time.Second) // between two looks
					check("release without a look", c.unlooked, release)
				})
			})
		}
	}
}

var lacking = mem.Options{IfAbsent: mem.Lacked, IfMatch: mem.Lacked}

// TestRequestCountsRefused: the cost of a refused exclusive acquire doesn't grow with the
// number of holders.
func TestRequestCountsRefused(t *testing.T) {
	for _, n := range []int{1, 1000, 10_000} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, mem.Options{})
				w.flags(n)
				time.Sleep(10 * time.Second) // older than those of acquirers about to withdraw
				m := w.machine()
				m.hooks.Count()
				k, err := m.Exclusive(t.Context(), "prune")
				held := mustHeld(t, k, err)
				if got := len(held.Holders) + held.More; got != min(n, 998) { // of the page's flags two are our own
					t.Errorf("%d holders are named or counted", got)
				}
				_, by := m.hooks.Count()
				want := map[string]int{"put": 2, "list": 1, "get": min(n, maxReported), "delete": 2}
				if !maps.Equal(by, want) {
					t.Errorf("requests %v, want %v", by, want)
				}
			})
		})
	}
}

// TestRequestCountsStale: leftovers cost one LIST and one deletion of many objects per 1,000 of
// them, and one GET each, once. A few are deleted one by one, beside each other. If the store
// can't delete many objects in one request, all are.
func TestRequestCountsStale(t *testing.T) {
	for _, c := range []struct {
		n       int
		noBatch bool
		want    map[string]int
	}{
		{2500, false, map[string]int{"put": 2, "list": 3, "get": 2500, "delete all": 3}},
		{2500, true, map[string]int{"put": 2, "list": 3, "get": 2500, "delete": 2500, "delete all": 1}},
		{atOnce + 1, false, map[string]int{"put": 2, "list": 1, "get": atOnce + 1, "delete all": 1}},
		{atOnce, false, map[string]int{"put": 2, "list": 1, "get": atOnce, "delete": atOnce}},
	} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t, mem.Options{NoBatch: c.noBatch})
			w.flags(c.n)
			time.Sleep(2 * DefaultTTL)
			m := w.machine()
			k, err := m.Exclusive(t.Context(), "prune")
			mustLock(t, k, err)
			if _, by := m.hooks.Count(); !maps.Equal(by, c.want) {
				t.Errorf("%d, %t: requests %v, want %v", c.n, c.noBatch, by, c.want)
			}
			k.Release(context.Background())
			w.empty()
		})
	}
}

// TestRefusedAcquirerYieldsAtOnce: an acquirer that can't get the lock yields at once, after
// few requests.
func TestRefusedAcquirerYieldsAtOnce(t *testing.T) {
	for _, mode := range []Mode{Shared, Exclusive} {
		do(t, func(t *testing.T, w *world) {
			other, err := w.machine().Exclusive(t.Context(), "prune")
			mustLock(t, other, err)
			time.Sleep(10 * time.Second) // older than an acquirer that is about to withdraw
			a := w.machine()
			a.hooks.Count()
			k, err := a.acquire(t.Context(), mode, "x")
			mustHeld(t, k, err)
			_, by := a.hooks.Count()
			want := map[string]int{"put": int(mode), "list": 1, "get": 2, "delete": 1}
			if !maps.Equal(by, want) {
				t.Errorf("%s: %v, want %v", mode, by, want)
			}
			other.Release(t.Context())
		})
	}
	do(t, func(t *testing.T, w *world) { // another client has no intent
		w.put("index/lock.exclusive", foreign(time.Now(), false))
		a := w.machine()
		k, err := a.Exclusive(t.Context(), "x")
		mustHeld(t, k, err)
		if _, by := a.hooks.Count(); by["list"] != 1 {
			t.Errorf("%v", by)
		}
	})
}
