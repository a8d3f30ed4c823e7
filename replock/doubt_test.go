package replock

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/repolock/repolock/internal/test/rounds"
	"github.com/repolock/repolock/store/mem"
)

// crashed leaves the lock of a crashed holder, long after its ttl.
func (w *world) crashed(t *testing.T, mode Mode, ttl time.Duration) {
	t.Helper()
	m := w.machine(func(o *Options) { o.TTL = ttl })
	k, err := m.acquire(t.Context(), mode, "crashed")
	mustLock(t, k, err)
	m.lose(t, k)
	time.Sleep(2 * ttl)
}

// TestWatchingIsBounded: an acquirer watches a perhaps stale lock for as long as it waits, or
// for two minutes. A lock with a longer ttl counts as held at once.
func TestWatchingIsBounded(t *testing.T) {
	cases := []struct {
		ttl, wait, most time.Duration
		held            bool
	}{
		{DefaultTTL, 0, DefaultTTL + 10*time.Second, false},
		{3 * time.Minute, time.Minute, 2 * time.Minute, true},
		{3 * time.Minute, 4 * time.Minute, 3*time.Minute + 10*time.Second, false},
		{3 * time.Minute, 0, 2 * time.Minute, true},
		{110 * time.Second, 0, 2 * time.Minute, false},
		{MaxTTL, 0, 2 * time.Minute, true},
		{MaxTTL, 15 * time.Minute, 15*time.Minute + 10*time.Second, true},
		{20 * time.Minute, Forever, 20*time.Minute + 10*time.Second, false},
	}
	for _, c := range rounds.Fewer(cases, cases[:3]) {
		for _, mode := range []Mode{Shared, Exclusive} {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, mem.Options{NoStoreClock: true})
				w.crashed(t, Exclusive, c.ttl)
				m, start := w.machine(), time.Now()
				k, err := m.acquire(t.Context(), mode, "x", Wait(c.wait))
				took := time.Since(start)
				if k != nil {
					k.Release(t.Context())
				}
				if errors.Is(err, ErrHeld) != c.held || (err == nil) == c.held || took > c.most || took < c.wait && c.held {
					t.Errorf("%s, ttl %v, wait %v: after %v: %v", mode, c.ttl, c.wait, took, err)
				}
				var held *HeldError
				if errors.As(err, &held) && (held.Holders[0].Verdict != Doubtful || !strings.Contains(err.Error(), "crashed, since 2000-01-01")) {
					t.Errorf("%v", err)
				}
			})
		}
	}
}

// TestBreakDoubtful: break-lock --stale leaves a lock that only one clock calls stale, unless
// a person has confirmed it, and always leaves one that no clock calls stale.
func TestBreakDoubtful(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, mem.Options{NoStoreClock: true, NoTime: true})
		w.crashed(t, Exclusive, MaxTTL)
		w.put("index/lock.shared/encrypted", []byte{1, 2, 3})
		live := w.machine()
		w.put("index/lock.shared/live", foreign(time.Now(), true))
		for _, c := range []struct {
			opts BreakOptions
			left int
		}{{BreakOptions{Stale: true}, 4}, {BreakOptions{Stale: true, Doubtful: true}, 2}} {
			if _, err := live.Break(t.Context(), c.opts); err != nil || len(w.keys()) != c.left {
				t.Errorf("%+v: left %v, %v", c.opts, w.keys(), err)
			}
		}
	})
}
