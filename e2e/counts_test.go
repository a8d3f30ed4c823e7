//go:build unix && e2e

package e2e

import (
	"fmt"
	"testing"
	"time"

	"github.com/repolock/repolock/internal/proxy"
	"github.com/repolock/repolock/replock"
)

// cost is what PROTOCOL.md's table counts.
type cost struct{ trips, requests int }

// course is the cost of a lock's life.
type course struct{ acquire, renew, release cost }

// TestRequestCounts asserts PROTOCOL.md's table, "What it costs", on what passes
// the proxy.
//
// Where it isn't known yet whether the server heeds conditions, the first lock of a
// process takes the way without them, and finds it out on the way: one request of
// the acquire and one of the first renewal are that. On B2 each upload that
// replaces another costs two calls more, one that looks for the version that it has
// replaced and one that deletes it, and each deletion one, that looks for what
// there is; the first uploads of a process ask for an upload URL each.
func TestRequestCounts(t *testing.T) {
	t.Parallel()
	var (
		sharedKept       = course{cost{2, 2}, cost{1, 1}, cost{1, 1}}
		sharedFirst      = course{cost{2, 2}, cost{3, 3}, cost{1, 1}}
		exclusiveKept    = course{cost{2, 3}, cost{1, 2}, cost{2, 2}}
		exclusiveFirst   = course{cost{4, 5}, cost{3, 5}, cost{2, 2}}
		sharedB2         = course{cost{2, 2}, cost{2 + 2, 2 + 2}, cost{1 + 1, 1 + 1}}
		sharedFirstB2    = course{cost{3, 3}, cost{2 + 2, 2 + 2}, cost{1 + 1, 1 + 1}}
		exclusiveB2      = course{cost{4, 4}, cost{2 + 2, 4 + 4}, cost{2 + 2, 2 + 2}}
		exclusiveFirstB2 = course{cost{5, 5}, cost{3 + 2, 5 + 4}, cost{2 + 2, 2 + 2}}
	)
	for _, c := range []struct {
		kind
		params  string
		mode    replock.Mode
		courses []course // of one client's locks, one after the other
	}{
		{onS3, "&conditions=kept", replock.Shared, []course{sharedKept, sharedKept}},
		{onS3, "&conditions=kept", replock.Exclusive, []course{exclusiveKept, exclusiveKept}},
		{onS3, "", replock.Shared, []course{sharedFirst, sharedKept}},
		{onS3, "", replock.Exclusive, []course{exclusiveFirst, exclusiveKept}},
		{onMinIO, "&conditions=kept", replock.Shared, []course{sharedKept, sharedKept}},
		{onMinIO, "&conditions=kept", replock.Exclusive, []course{exclusiveKept, exclusiveKept}},
		{onMinIO, "", replock.Shared, []course{sharedFirst, sharedKept}},
		{onMinIO, "", replock.Exclusive, []course{exclusiveFirst, exclusiveKept}},
		{onB2, "", replock.Shared, []course{sharedFirstB2, sharedB2}},
		{onB2, "", replock.Exclusive, []course{exclusiveFirstB2, exclusiveB2}},
	} {
		t.Run(fmt.Sprintf("%s%s, %s", c.name, c.params, c.mode), func(t *testing.T) {
			t.Parallel()
			at := c.on(c.shared(t))
			p := proxied(t, at, proxy.Behaviour{})
			l := newLocker(t, at.through(p)+c.params)
			if _, err := l.Status(t.Context()); err != nil { // signs in, and warms up
				t.Fatal(err)
			}
			// What goes out side by side is to overlap, however busy the machine is.
			p.Behave(proxy.Behaviour{Latency: 100 * time.Millisecond})
			for i, want := range c.courses {
				if got := measure(t, p, l, c.mode); got != want {
					t.Errorf("lock %d: round trips and requests of acquire, renew and release: %v, want %v", i+1, got, want)
				}
			}
		})
	}
}

// measure is what a lock costs, and lists what it sent.
func measure(t *testing.T, p *proxy.Proxy, l *replock.Locker, mode replock.Mode) course {
	t.Helper()
	p.Take()
	counted := func(what string) cost {
		log := p.Take()
		t.Logf("%s:\n%v", what, log)
		return cost{log.Trips(), len(log)}
	}
	k, err := take(t.Context(), l, mode)
	if err != nil {
		t.Fatal(err)
	}
	acquire := counted("acquire")
	if err := k.Check(t.Context()); err != nil {
		t.Error(err)
	}
	renew := counted("renew")
	if err := k.Release(t.Context()); err != nil {
		t.Error(err)
	}
	return course{acquire, renew, counted("release")}
}
