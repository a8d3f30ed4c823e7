//go:build unix && minio

package e2e

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/repolock/repolock/store"
)

// TestBrokenLockStaysBroken: a holder whose lock was broken stops its command at its next
// refresh, and doesn't put the lock back, whatever it has learnt of the server until then. On
// MinIO before September 2025 If-Match alone doesn't prevent that.
func TestBrokenLockStaysBroken(t *testing.T) {
	t.Parallel()
	for _, k := range []kind{onS3, onMinIO} {
		for _, operation := range []string{"backup", "prune"} {
			t.Run(k.name+", "+operation, func(t *testing.T) {
				t.Parallel()
				for try := 1; !staysBroken(k.on(k.shared(t)).site(t), operation); try++ {
					if try == 10 {
						t.Fatal("break-lock was never done before the next refresh")
					}
				}
			})
		}
	}
}

// staysBroken breaks a lock that is held, and lets a prune acquire it. It reports whether the
// break came between two refreshes. A refresh under way can put the lock back if If-Match
// can't be relied on, so a run on a machine that was too slow shows nothing.
func staysBroken(s *site, operation string) (told bool) {
	holder := s.hold(operation, "a", brief...)
	f := watched{s: s, store: openStore(s.t, s.repo)}
	f.look()
	refreshed := f.refreshes(3, holder)
	if holder.ended() {
		s.t.Logf("the holder ended, as on a machine that is too slow for its ttl: once more")
		return false
	}
	if code := s.start("break-lock", "--yes").code(); code != 0 {
		s.t.Fatalf("break-lock has exit code %d", code)
	}
	broken := time.Now()
	if took := broken.Sub(refreshed); took > ttl/4 {
		s.t.Logf("the lock was broken %v after a refresh: once more", took)
		s.touch("stop-a")
		holder.code()
		return false
	}

	// The prune gets in at once. It writes when the holder has had time to.
	pruner := s.start(append([]string{"prune", "--ttl", ttl.String(), "--", "sh", "-c",
		"touch in; while [ ! -e go ]; do sleep 0.1; done; exec \"$@\"", "sh"}, ticks("b")[1:]...)...)
	pruner.reaches("the prune to get in", func() bool { return s.exists("in") })
	f.seen = nil
	s.until("the holder to end, or to refresh what was broken", hang, func() bool {
		f.look()
		return holder.ended() || len(f.seen) == 3
	})
	s.t.Logf("%v after the break the holder had ended: %v; it had refreshed what was broken %d times",
		time.Since(broken).Round(100*time.Millisecond), holder.ended(), len(f.seen))
	s.touch("go")
	pruner.reaches("the prune to write", func() bool { return len(s.times("b")) > 10 })
	s.touch("stop-a") // otherwise it might run for ever
	code := holder.code()
	pruner.end("b")

	if len(f.seen) > 0 {
		s.t.Errorf("the lock was put back: %s", f.key)
	}
	if code != 79 {
		s.t.Errorf("the %s has exit code %d, want 79", operation, code)
	}
	if last, first := s.times("a"), s.times("b")[0]; !last[len(last)-1].Before(first) {
		s.t.Errorf("the %s wrote for %v beside the prune", operation, last[len(last)-1].Sub(first))
	}
	s.nothingLeft()
	return true
}

// watched is the object that only a holder writes, as the store has it.
type watched struct {
	s     *site
	store store.Store
	key   string
	seen  []string // its ETags
}

// look reports whether the object has a version that look hasn't seen. The first look finds
// out which object it is.
func (f *watched) look() bool {
	f.s.t.Helper()
	page, err := f.store.List(f.s.t.Context(), "index/lock.", "")
	if err != nil {
		f.s.t.Fatal(err)
	}
	for _, o := range page.Objects {
		if f.key == "" && strings.Contains(strings.TrimPrefix(o.Key, "index/lock."), "/") {
			f.key = o.Key
		}
		if o.Key == f.key && !slices.Contains(f.seen, o.ETag) {
			f.seen = append(f.seen, o.ETag)
			return true
		}
	}
	return false
}

// refreshes waits for n more refreshes, or for the end of their holder, and returns a time before
// the last one.
func (f *watched) refreshes(n int, holder *process) (after time.Time) {
	f.s.t.Helper()
	for range n {
		f.s.until("the lock to be refreshed", hang, func() bool {
			before := time.Now()
			if holder.ended() || f.look() {
				return true
			}
			after = before
			return false
		})
	}
	return after
}
