//go:build unix

package towerfleet

import (
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/repolock/repolock/internal/clock"
	"github.com/repolock/repolock/internal/test/rounds"
	"github.com/repolock/repolock/locking"
	"github.com/repolock/repolock/locking/lockingtest"
)

// moved is the machine's clock, which a test moves on.
type moved struct {
	clock.System
	by *atomic.Int64
}

func (m moved) Now() time.Time         { return m.System.Now().Add(time.Duration(m.by.Load())) }
func (m moved) Elapsed() time.Duration { return m.System.Elapsed() + time.Duration(m.by.Load()) }

// shown hides Break from the suite, which breaks the lock of a live holder. TestBreak has the
// rules of this format.
type shown struct {
	locking.Backend
	locking.Inspector
}

// TestConformance: repolocks alone keep the contract of package locking. A lock that has expired
// is free for clients with Force.
func TestConformance(t *testing.T) {
	t.Parallel()
	dir, by := filepath.Join(t.TempDir(), "locks"), new(atomic.Int64)
	lockingtest.Run(t, lockingtest.Config{
		New: func(t *testing.T) locking.Backend {
			b, err := New(dir, Options{Force: true, Settle: -1, Clock: moved{by: by}})
			if err != nil {
				t.Fatal(err)
			}
			return shown{b, b}
		},
		BadKeys: []string{"", "A", "a/b", "../a", "a.b", "-a", "a_", "a b", strings.Repeat("x", 129)},
		Expires: true,
		TTL:     100 * time.Second, // heartbeats have whole seconds
		Advance: func(d time.Duration) { by.Add(int64(d)) },
		Rounds:  rounds.Fewer(1000, 100),
	})
}
