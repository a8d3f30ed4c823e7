//go:build unix && minio

package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/repolock/repolock/internal/test/assert"
	"github.com/repolock/repolock/internal/test/miniotest"
	"github.com/repolock/repolock/internal/test/proxy"
	"github.com/repolock/repolock/replock"
	"github.com/repolock/repolock/store"
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
// If a process doesn't know yet whether the server heeds conditions, its first lock doesn't rely on them, and
// tests them with one request of the acquire and two of the first renewal. A look comes before each renewal.
// On B2 an upload that replaces another costs two more calls, which look for the replaced version and delete
// it; a deletion costs one more, which looks for versions. The first uploads of a process also ask for an
// upload URL each.
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
			l := newLocker(t, at.through(p)+c.params, "counts")
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
		p.Behave(proxy.Behaviour{Decide: (&sluice{t: t, left: want, all: make(chan struct{})}).decide})
		var err error
		switch step {
		case "acquire":
			k = acquire(t, l, mode)
		case "renew":
			err = k.Renew(t.Context())
		case "release":
			err = k.Release(t.Context())
		}
		assert.Need(t, err == nil, "%s: %v", step, err)
		log := p.Take()
		t.Logf("%s:\n%v", step, log)
		assert.Equal(t, []int{log.Trips(), len(log)}, []int{len(want), want.requests()}, "%s: round trips and requests", step)
	}
}

// sluice holds up the requests of each round trip until all of them have come, so that parallel requests
// overlap on any machine. A request that comes alone, because it waits for another's answer, is an error.
type sluice struct {
	t    *testing.T
	mu   sync.Mutex
	left cost          // of the coming round trips
	came int           // of the next one
	all  chan struct{} // closed when they are all there
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

// takesAbsent is the difference between MinIO before September 2025, which e2e/minio.sh starts
// with this release, and later ones: the old one takes a put with If-Match on a missing key.
var takesAbsent = os.Getenv("REPOLOCK_E2E_RELEASE") == "2025-04"

// TestIfMatchOnAbsentKey: the server is of the age that the tests assume.
func TestIfMatchOnAbsentKey(t *testing.T) {
	t.Parallel()
	want := store.ErrPrecondition
	if takesAbsent {
		want = nil
	}
	for name, bucket := range miniotest.Buckets(t) {
		for _, url := range []string{bucket.S3("by-s3"), bucket.MinIO("by-minio")} {
			s, other := openStore(t, url), openStore(t, url)
			o, err := s.Put(t.Context(), "index/x", []byte("1"), store.PutOptions{})
			assert.OK(t, err)
			assert.OK(t, other.Delete(t.Context(), "index/x"))
			for _, etag := range []string{o.ETag, "00000000000000000000000000000000"} {
				_, err := s.Put(t.Context(), "index/x", []byte("2"), store.PutOptions{IfMatch: etag})
				assert.Is(t, err, want, "%s, on a deleted object", name)
				assert.OK(t, s.Delete(t.Context(), "index/x"))
			}
			_, err = s.Put(t.Context(), "index/never", []byte("2"), store.PutOptions{IfMatch: o.ETag})
			assert.Is(t, err, want, "%s, on what never was", name)
		}
	}
}

// diagnosis is the part of doctor's JSON that these tests read.
type diagnosis struct {
	Checks []struct{ Name, Result, Detail string }
	Clock  struct {
		Offset float64 `json:"offset_seconds"`
	}
	Plan struct {
		Exclusive  int `json:"exclusive_round_trips"`
		Conditions string
		Fence      bool
	}
	Left         []string
	Verdict      struct{ Fitness, Summary string }
	SuggestedURL string `json:"suggested_url"`
}

// diagnose runs repolock doctor, which must leave nothing.
func diagnose(s *site, code int, fitness string) (d diagnosis) {
	s.t.Helper()
	p := s.start("--json", "doctor")
	p.exits(code)
	assert.OK(s.t, json.Unmarshal([]byte(p.stderr.String()), &d))
	assert.That(s.t, d.Verdict.Fitness == fitness && len(d.Left) == 0, "%+v", d)
	s.nothingLeft()
	return d
}

func (d diagnosis) result(name string) string { result, _ := d.check(name); return result }

func (d diagnosis) detail(name string) string { _, detail := d.check(name); return detail }

func (d diagnosis) check(name string) (result, detail string) {
	for _, c := range d.Checks {
		if c.Name == name {
			return c.Result, c.Detail
		}
	}
	return "missing", ""
}

// TestDoctor: doctor finds real servers fit, and recommends what would help. It runs on MinIO
// of both ages.
func TestDoctor(t *testing.T) {
	onEach(t, kinds, func(t *testing.T, k kind) {
		s := k.on(k.shared(t)).site(t)
		d := diagnose(s, 0, "fit")
		for _, name := range []string{"reachable", "list", "write", "read", "overwrite", "delete", "list_after_write", "clock_offset"} {
			assert.Equal(t, d.result(name), "ok", name)
		}
		if k.name == "b2" { // has no conditional put
			assert.That(t, d.Plan.Conditions == "unreliable" && d.SuggestedURL == "", "%+v", d)
			return
		}
		if takesAbsent {
			doctorOfOldMinIO(s, d)
			return
		}
		assert.That(t, d.result("if_match_absent") == "ok" && strings.Contains(d.SuggestedURL, "conditions=kept"), "%+v", d)
		assert.That(t, d.Plan.Conditions == "proven" && d.Plan.Exclusive == 4 && !d.Plan.Fence, "%+v", d)
		d = diagnose(s.at(d.SuggestedURL), 0, "fit")
		assert.That(t, d.Plan.Conditions == "relied_on" && d.Plan.Exclusive == 2 && d.Plan.Fence && d.SuggestedURL == "", "%+v", d)
	})
}

// doctorOfOldMinIO: a server that takes If-Match on a missing key is fit, unless the user has
// declared that it keeps conditions.
func doctorOfOldMinIO(s *site, d diagnosis) {
	const which = "(MinIO before September 2025)"
	if d.result("if_match") != "ok" || d.result("if_match_absent") != "warn" || !strings.Contains(d.detail("if_match_absent"), which) ||
		d.Plan.Conditions != "unreliable" || d.Plan.Fence || d.SuggestedURL != "" {
		s.t.Errorf("%+v", d)
	}
	d = diagnose(s.at(s.repo+"&conditions=kept"), 78, "unfit")
	assert.That(s.t, d.result("if_match_absent") == "fail" && strings.Contains(d.detail("if_match_absent"), "leave conditions=kept out"), "%+v", d)
}
