package memory_test

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/repolock/repolock/internal/test/assert"
	"github.com/repolock/repolock/internal/test/lockcheck"
	"github.com/repolock/repolock/locking"
	"github.com/repolock/repolock/locking/lockingtest"
	"github.com/repolock/repolock/locking/memory"
)

// hands is a clock that only a test moves.
type hands struct{ at atomic.Int64 }

func (c *hands) Now() time.Time                       { return time.Unix(1e9, c.at.Load()) }
func (c *hands) Elapsed() time.Duration               { return time.Duration(c.at.Load()) }
func (c *hands) After(time.Duration) <-chan time.Time { return nil }

// TestConformance: the backend keeps the contract.
func TestConformance(t *testing.T) {
	c := new(hands)
	b := memory.New(c)
	lockingtest.Run(t, lockingtest.Config{
		New:     func(*testing.T) locking.Backend { return b },
		TTL:     time.Minute,
		Expires: true,
		Advance: func(d time.Duration) { c.at.Add(int64(d)) },
		BadKeys: []string{""},
	})
}

// TestBubble: the backend keeps the contract on the machine's clock, which is a bubble's in testing/synctest.
func TestBubble(t *testing.T) {
	b := memory.New(nil)
	lockingtest.Run(t, lockingtest.Config{
		New:     func(*testing.T) locking.Backend { return b },
		TTL:     time.Minute,
		Expires: true,
		Bubble:  true,
	})
}

// TestTimes: Inspect returns when a lock was acquired and when it was renewed. The lock lasts for its ttl from
// then, and not an instant longer.
func TestTimes(t *testing.T) {
	c := new(hands)
	b := memory.New(c)
	h, ok, err := b.TryLock(t.Context(), "k", time.Minute)
	assert.Need(t, ok && err == nil, "%v, %v", ok, err)
	acquired := c.Now()
	c.at.Add(int64(time.Second))
	assert.OK(t, b.Renew(t.Context(), h))
	c.at.Add(int64(time.Minute - 1))
	got, err := b.Inspect(t.Context(), "k")
	want := locking.Info{Key: "k", Acquired: acquired, Renewed: acquired.Add(time.Second), TTL: time.Minute, Revision: "1"}
	assert.That(t, err == nil && got != nil && *got == want, "%+v, %v, want %+v", got, err, want)
	c.at.Add(1)
	lockcheck.Free(t, b, "k")
}
