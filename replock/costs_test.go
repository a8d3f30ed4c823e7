package replock

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/repolock/repolock/internal/test/assert"
	"github.com/repolock/repolock/internal/test/hookstore"
	"github.com/repolock/repolock/store/memory"
)

// The list prices of docs/evidence/costs.md, in dollars for a million requests. DELETE costs nothing on S3,
// nor do B2's class A calls: uploads and deletions.
const (
	s3Write = 5.0 // PUT, LIST
	s3Read  = 0.4 // GET
	b2B     = 0.4 // downloads
	b2C     = 4.0 // listings, also of versions, and signing in
	b2Free  = 2500
)

// The jobs of docs/costs.md: each machine backs up each night, for an hour, and one prune a week
// lasts an hour, too.
const (
	nights = 30.0
	prunes = nights / 7
	lasts  = time.Hour
)

// sent is the requests of one lock, from its acquire to its release.
type sent struct {
	put, replacing, list, get, delete int
}

// calls returns B2's calls of class B and C. A lookup of versions precedes each deletion and
// follows each upload that replaces an object; a process signs in once.
func (s sent) calls() (b, c float64) {
	return float64(s.get), float64(1 + s.list + s.delete + s.replacing)
}

func (s sent) s3() float64 { return (float64(s.put+s.list)*s3Write + float64(s.get)*s3Read) / 1e6 }

// life counts the requests of a lock that is held for an hour, among others' locks.
func life(t *testing.T, mode Mode, opts memory.Options, others int, change ...func(*Options)) (s sent) {
	bubble(t, opts, func(t *testing.T, w *world) {
		if mode == Shared {
			w.flags(others)
		}
		m := w.machine(change...)
		m.rand, m.earlier = rand.NewChaCha8([32]byte{}), m.early
		var replacing atomic.Int64
		m.hooks.Before(on("put", "", func(r hookstore.Request) {
			if r.Opts.Replaces != "" {
				replacing.Add(1)
			}
		}))
		k := m.takes(t, mode)
		time.Sleep(lasts)
		assert.OK(t, k.Check(t.Context())) // when the command has ended
		k.Release(t.Context())
		_, by := m.hooks.Count()
		s = sent{by["put"], int(replacing.Load()), by["list"], by["get"], by["delete"]}
	})
	return s
}

// priced is a store of docs/evidence/costs.md, with the price of a lock's requests.
type priced struct {
	name string
	opts memory.Options
}

var onS3, onB2 = priced{"S3", memory.Options{}}, priced{"B2", memory.Options{IfAbsent: memory.Lacked, IfMatch: memory.Lacked, Versions: true}}

// price returns the price of that many such locks in one day, in dollars. B2 has some calls free each day.
func (p priced) price(s sent, locks, free float64) float64 {
	if p.name == "S3" {
		return locks * s.s3()
	}
	b, c := s.calls()
	return (max(0, locks*b-free)*b2B + max(0, locks*c-free)*b2C) / 1e6
}

// seldom are the flags --ttl 10m --look 10m.
func seldom(o *Options) { o.TTL, o.Look = 10*time.Minute, 10*time.Minute }

// crowded is more locks than a holder's look lists.
const crowded = 2 * crowd

// TestCosts computes the tables of docs/costs.md and docs/evidence/costs.md, which must have them.
func TestCosts(t *testing.T) {
	var requests strings.Builder
	month := map[int][]string{10: nil, 1_000: nil, 100_000: nil}
	for _, p := range []priced{onS3, onB2} {
		for _, c := range []struct {
			flags  string
			change func(*Options)
		}{{"", func(*Options) {}}, {" `--ttl 10m --look 10m`", seldom}} {
			backup, among, prune := life(t, Shared, p.opts, 0, c.change), life(t, Shared, p.opts, crowded, c.change), life(t, Exclusive, p.opts, 0, c.change)
			for _, row := range []struct {
				name string
				s    sent
			}{{"backup", backup}, {"backup beside 200 others", among}, {"prune", prune}} {
				fmt.Fprintf(&requests, "| %s, %s%s | %d | %d | %d | %d | %.2f |\n",
					p.name, row.name, c.flags, row.s.put, row.s.list, row.s.get, row.s.delete, p.price(row.s, 1000, 0))
			}
			for machines := range month {
				s := among
				if machines < crowded {
					s = backup
				}
				month[machines] = append(month[machines], dollars(nights*p.price(s, float64(machines), b2Free)+prunes*p.price(prune, 1, 0)))
			}
		}
	}
	money := ""
	for _, n := range []int{10, 1_000, 100_000} {
		money += fmt.Sprintf("| %s | %s |\n", grouped(n), strings.Join(month[n], " | "))
	}
	for name, table := range map[string]string{"docs/costs.md": money, "docs/evidence/costs.md": requests.String()} {
		page, err := os.ReadFile("../" + name)
		assert.OK(t, err)
		assert.That(t, strings.Contains(string(page), table), "%s doesn't have this table:\n%s", name, table)
	}
}

// dollars rounds to two digits.
func dollars(v float64) string {
	switch {
	case v < 0.1:
		return fmt.Sprintf("%.3f", v)
	case v < 10:
		return fmt.Sprintf("%.2f", v)
	case v < 1000:
		return fmt.Sprintf("%.0f", v)
	default:
		return grouped(int(v/100+.5) * 100)
	}
}

func grouped(n int) string {
	if n < 1000 {
		return fmt.Sprint(n)
	}
	return fmt.Sprintf("%s,%03d", grouped(n/1000), n%1000)
}

// flags puts n live shared flags of other holders into the store.
func (w *world) flags(n int) {
	m := w.machine()
	for i := range n {
		t := m.try(Shared)
		m.date(t)
		w.put(fmt.Sprintf("index/lock.shared/19990101T000000.%09dZ-%s", i, t.id), t.body.Encode())
	}
}

// trips counts round trips in sequence: a request that starts while another one is under way
// is part of its round trip. Each request takes a second.
func (m *machine) trips(f func()) (trips time.Duration, requests int, by map[string]int) {
	m.hooks.Count()
	m.hooks.Before(takesASecond)
	defer m.hooks.Before(nil)
	start := time.Now()
	f()
	requests, by = m.hooks.Count()
	return time.Since(start), requests, by
}

// cost is what a step takes: round trips and requests.
type cost struct{ trips, requests int }

// costs fails unless a step has this cost.
func (m *machine) costs(t *testing.T, what string, want cost, f func()) {
	t.Helper()
	trips, requests, by := m.trips(f)
	equal(t, fmt.Sprint(what, ": ", by), cost{int(trips / time.Second), requests}, want)
}

// TestRequestCounts: each step of a lock's life takes these round trips and requests. Without If-Match a renewal
// takes a look before its puts, and a release one before its deletes unless the lock was looked at just before.
func TestRequestCounts(t *testing.T) {
	for _, c := range []struct {
		name                              string
		mode                              Mode
		opts                              memory.Options
		acquire, renew, release, unlooked cost
	}{
		{"shared", Shared, memory.Options{}, cost{2, 2}, cost{1, 1}, cost{1, 1}, cost{1, 1}},
		{"exclusive", Exclusive, memory.Options{}, cost{2, 3}, cost{1, 2}, cost{1, 2}, cost{1, 2}},
		{"shared, no conditions", Shared, lacking, cost{2, 2}, cost{2, 2}, cost{1, 1}, cost{1, 1}},
		{"exclusive, no conditions", Exclusive, lacking, cost{4, 4}, cost{2, 4}, cost{1, 2}, cost{2, 3}},
		// The first renewal of a shared lock proves If-Match; an exclusive one has proved it before.
		{"shared, conditions claimed", Shared, claiming, cost{2, 2}, cost{3, 4}, cost{1, 1}, cost{1, 1}},
		{"exclusive, conditions claimed", Exclusive, claiming, cost{3, 5}, cost{2, 4}, cost{1, 2}, cost{2, 3}},
	} {
		for _, n := range []int{0, 1, 1000, 10_000} {
			if c.mode == Exclusive && n > 0 {
				continue // refused: TestRequestCountsRefused
			}
			sub(t, fmt.Sprintf("%s, %d flags", c.name, n), c.opts, func(t *testing.T, w *world) {
				w.flags(n)
				m := w.machine()
				var k *Lock
				m.costs(t, "acquire", c.acquire, func() { k = m.takes(t, c.mode) })
				time.Sleep(4 * time.Second) // the first look is over
				m.costs(t, "renew", c.renew, func() { assert.OK(t, k.Refresh(t.Context())) })
				pages := min(1+n/1000, 2) // our own flag is on the second page
				m.costs(t, "check", cost{pages, pages}, func() { assert.OK(t, k.Check(t.Context())) })
				m.costs(t, "release", c.release, func() { mustRelease(t, k) })
				k = m.takes(t, c.mode)
				time.Sleep(8 * time.Second) // between two looks
				m.costs(t, "release without a look", c.unlooked, func() { mustRelease(t, k) })
			})
		}
	}
}

// TestRequestCountsRefused: the cost of a refused exclusive acquire doesn't grow with the number of holders.
func TestRequestCountsRefused(t *testing.T) {
	eachOf(t, []int{1, 1000, 10_000}, func(t *testing.T, w *world, n int) {
		w.flags(n)
		time.Sleep(10 * time.Second) // older than those of acquirers about to withdraw
		m := w.machine()
		held := m.refused(t, Exclusive)
		equal(t, "holders that are named or counted", len(held.Holders)+held.More, min(n, 998)) // of the page's flags two are our own
		m.sentJust(t, map[string]int{"put": 2, "list": 1, "get": min(n, maxReported), "delete": 2})
	})
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
		bubble(t, memory.Options{NoBatch: c.noBatch}, func(t *testing.T, w *world) {
			w.flags(c.n)
			time.Sleep(2 * DefaultTTL)
			m, k := w.holder(t, Exclusive)
			m.sentJust(t, c.want)
			w.leavesNothing(k)
		})
	}
}

// TestRefusedAcquirerYieldsAtOnce: an acquirer that can't get the lock yields at once, after few requests.
func TestRefusedAcquirerYieldsAtOnce(t *testing.T) {
	bothModes(t, memory.Options{}, func(t *testing.T, w *world, mode Mode) {
		w.machine().takes(t, Exclusive)
		time.Sleep(10 * time.Second) // older than an acquirer that is about to withdraw
		a := w.machine()
		a.refused(t, mode)
		a.sentJust(t, map[string]int{"put": int(mode), "list": 1, "get": 2, "delete": 1})
	})
	eachOf(t, []func(w *world){
		func(w *world) { w.put(pointer, foreign(time.Now(), false)) }, // another client has no intent
		func(w *world) { // a flag that was refreshed just now isn't a new one
			k := w.machine().takes(w.t, Shared)
			time.Sleep(10 * time.Second)
			assert.OK(w.t, k.Refresh(w.t.Context()))
		},
	}, func(t *testing.T, w *world, f func(*world)) {
		f(w)
		a := w.machine()
		a.refused(t, Exclusive)
		a.sent(t, between{"list": {1, 1}})
	})
}

// sentJust fails unless the machine has sent exactly these requests.
func (m *machine) sentJust(t *testing.T, want map[string]int) {
	t.Helper()
	_, by := m.hooks.Count()
	assert.That(t, maps.Equal(by, want), "sent %v, want %v", by, want)
}
