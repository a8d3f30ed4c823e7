//go:build unix && minio

package e2e

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/repolock/repolock/internal/test/proxy"
	"github.com/repolock/repolock/replock"
)

// cost is the number of requests in each round trip. Those of one round trip are sent in
// parallel.
type cost []int

func (c cost) requests() (n int) {
	for _, r := range c {
		n += r
	}
	return n
}

// course is the cost of a lock's life.
type course struct{ acquire, renew, release cost }

// TestRequestCounts: each step of a lock's life sends these requests, as the proxy counts them.
//
// Where it isn't known yet whether the server heeds conditions, the first lock of a
// process takes the way without them, and finds it out on the way: one request of
// the acquire and two of the first renewal are that. A look comes before each renewal. On B2 each upload that
// replaces another costs two calls more, one that looks for the version that it has
// replaced and one that deletes it, and each deletion one, that looks for what
// there is; the first uploads of a process ask for an upload URL each.
func TestRequestCounts(t *testing.T) {
	t.Parallel()
	var (
		sharedKept       = course{cost{1, 1}, cost{1}, cost{1}}
		sharedFirst      = course{cost{1, 1}, cost{1, 2, 1}, cost{1}}
		sharedClaimed    = course{cost{1, 1}, cost{1, 1}, cost{1}}
		exclusiveKept    = course{cost{2, 1}, cost{2}, cost{2, 1}}
		exclusiveFirst   = course{cost{3, 1, 1}, cost{2, 3, 1}, cost{2, 1}}
		exclusiveClaimed = course{cost{2, 1}, cost{2, 2}, cost{2, 1}}
		sharedB2         = course{cost{1, 1}, cost{1, 1, 1, 1}, cost{1, 1}}
		sharedFirstB2    = course{cost{1, 1, 1}, cost{1, 1, 1, 1}, cost{1, 1}}
		exclusiveB2      = course{cost{1, 1, 1, 1}, cost{2, 2, 2, 2}, cost{2, 2, 1}}
		exclusiveFirstB2 = course{cost{1, 1, 1, 1, 1}, cost{2, 2, 2, 2, 1}, cost{2, 2, 1}}
	)
	for _, c := range []struct {
		kind
		params  string
		mode    replock.Mode
		courses []course // of one client's locks, one after the other
	}{
		{onS3, "&conditions=kept", replock.Shared, []course{sharedKept, sharedKept}},
		{onS3, "&conditions=kept", replock.Exclusive, []course{exclusiveKept, exclusiveKept}},
		{onS3, "", replock.Shared, []course{sharedFirst, sharedClaimed}},
		{onS3, "", replock.Exclusive, []course{exclusiveFirst, exclusiveClaimed}},
		{onMinIO, "&conditions=kept", replock.Shared, []course{sharedKept, sharedKept}},
		{onMinIO, "&conditions=kept", replock.Exclusive, []course{exclusiveKept, exclusiveKept}},
		{onMinIO, "", replock.Shared, []course{sharedFirst, sharedClaimed}},
		{onMinIO, "", replock.Exclusive, []course{exclusiveFirst, exclusiveClaimed}},
		{onB2, "", replock.Shared, []course{sharedFirstB2, sharedB2}},
		{onB2, "", replock.Exclusive, []course{exclusiveFirstB2, exclusiveB2}},
	} {
		t.Run(fmt.Sprintf("%s%s, %s", c.name, c.params, c.mode), func(t *testing.T) {
			t.Parallel()
			at := c.on(c.shared(t))
			p := proxied(t, at, proxy.Behaviour{})
			// The holder must not look in between, however long a step takes.
			l, err := replock.New(openStore(t, at.through(p)+c.params), replock.Options{Name: "counts", TTL: lasting, Look: lasting})
			if err != nil {
				t.Fatal(err)
			}
			if _, err := l.Status(t.Context()); err != nil { // signs in, and warms up
				t.Fatal(err)
			}
			for i, want := range c.courses {
				t.Logf("lock %d", i+1)
				live := liveOnce(t, p, l, c.mode)
				live("acquire", want.acquire)
				live("renew", want.renew)
				live("release", want.release)
			}
		})
	}
}

// liveOnce runs the steps of one lock's life, and checks the cost of each.
func liveOnce(t *testing.T, p *proxy.Proxy, l *replock.Locker, mode replock.Mode) func(step string, want cost) {
	var k *replock.Lock
	return func(step string, want cost) {
		t.Helper()
		p.Take()
		p.Behave(proxy.Behaviour{Decide: newSluice(t, want).decide})
		var err error
		switch step {
		case "acquire":
			k, err = take(t.Context(), l, mode)
		case "renew":
			err = k.Renew(t.Context())
		case "release":
			err = k.Release(t.Context())
		}
		if err != nil {
			t.Fatalf("%s: %v", step, err)
		}
		log := p.Take()
		t.Logf("%s:\n%v", step, log)
		if log.Trips() != len(want) || len(log) != want.requests() {
			t.Errorf("%s takes %d round trips and %d requests, want %d and %d", step, log.Trips(), len(log), len(want), want.requests())
		}
	}
}

// sluice holds up the requests of each round trip until all of them have come. So requests
// that are sent in parallel overlap however busy the machine is. A request that waits for
// another's answer comes alone, which is an error.
type sluice struct {
	t    *testing.T
	mu   sync.Mutex
	left cost          // of the coming round trips
	came int           // of the next one
	all  chan struct{} // closed when they are all there
}

func newSluice(t *testing.T, want cost) *sluice {
	return &sluice{t: t, left: want, all: make(chan struct{})}
}

func (s *sluice) decide(r proxy.Request) proxy.Fault {
	all := s.come()
	select {
	case <-all:
	case <-time.After(time.Minute): // longer than a client waits for an answer
		s.t.Errorf("%v came alone", r)
	}
	return proxy.Fault{}
}

// come counts a request, and returns a channel that is closed when all of its round trip have
// come.
func (s *sluice) come() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := s.all
	s.came++
	if len(s.left) == 0 || s.came >= s.left[0] {
		close(s.all)
		s.all, s.came = make(chan struct{}), 0
		s.left = s.left[min(1, len(s.left)):]
	}
	return all
}
