package repository_test

import (
	"testing"
	"time"

	"github.com/repolock/repolock/internal/test/rounds"
	"github.com/repolock/repolock/locking"
	"github.com/repolock/repolock/locking/lockingtest"
	"github.com/repolock/repolock/locking/repository"
	"github.com/repolock/repolock/store"
	"github.com/repolock/repolock/store/dir"
	"github.com/repolock/repolock/store/mem"
)

func config(s store.Store) lockingtest.Config {
	return lockingtest.Config{
		New: func(t *testing.T) locking.Backend {
			b, err := repository.New(s, repository.Options{Clock: newBubble()})
			if err != nil {
				t.Fatal(err)
			}
			return b
		},
		Keys:    []string{"a", "b", "weekly-2_x"},
		BadKeys: []string{"", "A", "a/b", "../a", "-a", "a ", "a\x00", "é"},
		Expires: true, TTL: ttl, Bubble: true,
		Limit: time.Hour, // acquirers that meet pause for seconds
	}
}

// TestConformance: the backend keeps the contract on stores with good and poor abilities.
func TestConformance(t *testing.T) {
	for name, c := range map[string]struct {
		opts   mem.Options
		rounds int
	}{
		"kept":    {mem.Options{}, rounds.Fewer(1000, 100)},
		"claimed": {mem.Options{IfAbsent: mem.Claimed, IfMatch: mem.Claimed, Precision: time.Second}, 100},
		"ignored": {mem.Options{IfAbsent: mem.Ignored, IfMatch: mem.Ignored, NoTime: true}, 100},
		"lacked":  {mem.Options{IfAbsent: mem.Lacked, IfMatch: mem.Lacked}, 100},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			conf := config(mem.New(c.opts))
			conf.Rounds = c.rounds
			lockingtest.Run(t, conf)
		})
	}
}

// TestConformanceOnDisk: the backend keeps the contract on a directory, and leaves no lock there.
func TestConformanceOnDisk(t *testing.T) {
	t.Parallel()
	s, err := dir.Open(t.Context(), t.TempDir(), dir.Options{})
	if err != nil {
		t.Fatal(err)
	}
	lockingtest.Run(t, config(stamp(s)))
	page, err := s.List(t.Context(), "", "")
	if len(page.Objects) > 0 || err != nil {
		t.Errorf("left: %v, %v", page.Objects, err)
	}
}

// TestCosts: the requests that docs/locking.md names.
func TestCosts(t *testing.T) {
	in(t, func(t *testing.T, a, _ *client) {
		costs := func(what string, want int) {
			t.Helper()
			if n, by := a.store.Count(); n != want {
				t.Errorf("%s: %d requests, want %d: %v", what, n, want, by)
			}
		}
		h := a.acquire()
		costs("acquire", 3)
		a.renew(h)
		costs("renew", 2)
		a.release(h)
		costs("release", 3)
	})
}
