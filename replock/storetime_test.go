package replock

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/repolock/repolock/internal/test/hookstore"
	"github.com/repolock/repolock/store/mem"
)

// TestUnansweredPutDatesNothing: a put of our own flag that is applied late doesn't date the
// store's time by its send: the store's time stays a lower bound.
func TestUnansweredPutDatesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, mem.Options{NoTime: true, PageSize: 2})
		a, b := w.machine(), w.machine()
		k, err := a.Shared(t.Context(), "backup")
		mustLock(t, k, err)
		a.hooks.Before(outage)
		time.Sleep(33500 * time.Millisecond)
		b.clock.setSkew(20 * time.Second)
		// b's first put of its intent gets no answer, and is applied late.
		var n, lists atomic.Int64
		b.hooks.Before(func(ctx context.Context, r hookstore.Request) error {
			switch {
			case r.Op == "put" && strings.Contains(r.Key, "intent") && n.Add(1) == 1:
				go func() {
					time.Sleep(20 * time.Second)
					w.put(r.Key, r.Body)
				}()
				<-ctx.Done()
				return ctx.Err()
			case r.Op == "list" && lists.Add(1) == 1:
				time.Sleep(9900 * time.Millisecond)
			}
			return nil
		})
		other, err := b.Exclusive(t.Context(), "prune")
		t.Logf("%v %v; alive %v", other != nil, err, alive(k))
		if other != nil && alive(k) {
			t.Error("both in")
		}
		if other != nil {
			other.Release(t.Context())
		}
		k.Release(t.Context())
	})
}

// TestStaleIntentIsPassedInACrowd: a stale intent among many shared flags is passed on a store without
// a clock of its own.
func TestStaleIntentIsPassedInACrowd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, mem.Options{NoTime: true})
		w.flags(1500)
		x := w.machine()
		tr, _ := x.newTry(Exclusive, "prune", nothingYet())
		x.date(tr)
		w.put(tr.flag.key, tr.body.encode())
		time.Sleep(time.Hour)
		k, err := w.machine().Shared(t.Context(), "backup")
		if err != nil {
			t.Errorf("an hour after the crash: %v", err)
		} else {
			k.Release(t.Context())
		}
	})
}

// TestOwnFlagIsFoundOnALaterPage: on a store that shows its time by mod times only, an
// acquirer looks for its own flag on later pages too. Without the store's time it would take a
// stale lock for live if the holder's clock was ahead.
func TestOwnFlagIsFoundOnALaterPage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, mem.Options{PageSize: 1, NoTime: true})
		a, b := w.machine(), w.machine()
		a.clock.setSkew(time.Hour)
		k, err := a.Exclusive(t.Context(), "prune")
		mustLock(t, k, err)
		a.lose(t, k)
		start := time.Now()
		b.untilFree(t, time.Second)
		if took := time.Since(start); took > 2*DefaultTTL+5*time.Second {
			t.Errorf("let in only after %v", took)
		}
		a.hooks.Before(nil)
		k.Release(t.Context())
	})
}

// TestStoreTimeIsALowerBound: a look's estimate of the store's time is never ahead of it, and
// its own time is no later than the listing, however long requests and answers take.
func TestStoreTimeIsALowerBound(t *testing.T) {
	for name, opts := range map[string]mem.Options{"returned": {}, "not returned": {NoTime: true}, "second": {Precision: time.Second}} {
		for _, gone := range []bool{false, true} {
			t.Run(name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					w := newWorld(t, opts)
					w.skew.Store(int64(-time.Hour))
					a := w.machine()
					a.hooks.Before(func(context.Context, hookstore.Request) error { time.Sleep(3 * time.Second); return nil })
					var listed time.Duration
					a.hooks.After(func(_ context.Context, r hookstore.Request, err error) error {
						if r.Op == "list" {
							listed = a.clock.Elapsed()
						}
						time.Sleep(3 * time.Second)
						return err
					})
					tr, err := a.newTry(Shared, "x", nothingYet())
					if err != nil {
						t.Fatal(err)
					}
					check := func(st storeTime) {
						t.Helper()
						if ahead := st.when(a.clock.Elapsed()).Sub(time.Now().Add(time.Duration(w.skew.Load()))); st.known() && ahead > 0 {
							t.Errorf("%v ahead of the store", ahead)
						}
					}
					if err := a.raise(t.Context(), tr); err != nil {
						t.Fatal(err)
					}
					check(tr.st)
					if gone {
						w.mem.Delete(t.Context(), tr.flag.key)
						tr.flag.put = false
					}
					for range 2 {
						f, err := a.look(t.Context(), tr, memory{})
						if err != nil {
							t.Fatal(err)
						}
						check(f.st)
						if f.now > listed {
							t.Errorf("judged by the time %v after the listing", f.now-listed)
						}
					}
				})
			})
		}
	}
}

// TestNoModTimeIsNoWitness: a store without mod times has no first witness, and no lock is
// stale by the other one only.
func TestNoModTimeIsNoWitness(t *testing.T) {
	do(t, func(t *testing.T, w *world) {
		a := w.machine()
		e := &entry{kind: kindShared, since: a.clock.Elapsed(), read: true}
		e.lease, e.err = decode(foreign(time.Now().Add(-time.Hour), true))
		a.judge(e, storeTime{time.Now(), a.clock.Elapsed()}, a.clock.Elapsed())
		if e.verdict == Stale {
			t.Error("stale by one clock")
		}
	})
	_ = mem.Options{}
}
