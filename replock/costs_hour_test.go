package replock

import (
	"fmt"
	"os"
	"regexp"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/repolock/repolock/internal/test/assert"
	"github.com/repolock/repolock/store/memory"
)

// fleet is the number of machines that hold a shared lock at the same time in docs/evidence/costs.md.
const fleet = 20

// traffic is requests of HTTP, and bytes of TCP's payload, with TLS.
type traffic struct{ requests, sent, received int }

func (w *traffic) add(times int, o traffic) {
	w.requests += times * o.requests
	w.sent += times * o.sent
	w.received += times * o.received
}

// hourOfFleet returns the requests of all machines, from their acquires to their releases after an hour, and
// their successful refreshes.
func hourOfFleet(t *testing.T, opts memory.Options) (s sent, refreshes int) {
	bubble(t, opts, func(t *testing.T, w *world) {
		var refreshed atomic.Int64
		var machines []*machine
		var locks []*Lock
		for i := range fleet {
			m := w.paced(ownPace, uint64(i))
			m.opts.Observe = func(e Event) {
				if e.Kind == EventRefreshed {
					refreshed.Add(1)
				}
			}
			machines, locks = append(machines, m), append(locks, m.takes(t, Shared))
		}
		time.Sleep(lasts)
		for i, k := range locks {
			assert.OK(t, k.Check(t.Context())) // when the command has ended
			mustRelease(t, k)
			_, by := machines[i].hooks.Count()
			s.put, s.list, s.get, s.delete = s.put+by["put"], s.list+by["list"], s.get+by["get"], s.delete+by["delete"]
		}
		refreshes = int(refreshed.Load())
	})
	s.replacing = refreshes
	return s, refreshes
}

// TestCostsOfMachines computes the table of docs/evidence/costs.md for 20 machines, from requests that it counts in
// simulated time, and from the bytes of each step in the page, which TestBytes of e2e/ measures.
func TestCostsOfMachines(t *testing.T) {
	raw, err := os.ReadFile("../docs/evidence/costs.md")
	assert.OK(t, err)
	page := string(raw)
	table := ""
	for _, c := range []struct {
		name, steps string
		priced
	}{
		{"S3, conditions kept", "S3", priced{"S3", memory.Options{}}},
		{"S3, conditions claimed", "S3 claimed", priced{"S3", claiming}},
		{"B2", "B2", onB2},
	} {
		s, refreshes := hourOfFleet(t, c.opts)
		step := func(name string) traffic { return stepIn(t, page, c.steps+", "+name) }
		looks := s.list - fleet
		if c.opts.IfMatch != memory.Kept {
			looks -= refreshes // one before each
		}
		var all traffic
		all.add(fleet, step("connect"))
		all.add(fleet, step("acquire"))
		all.add(looks, step("look"))
		all.add(fleet, step("first refresh"))
		all.add(refreshes-fleet, step("refresh"))
		all.add(fleet, step("release"))
		dollars := c.price(s, 1, 0)
		if c.name != "B2" { // one call of a store is one request
			equal(t, c.name+": requests", all.requests, s.put+s.list+s.get+s.delete)
		} else {
			dollars += (fleet - 1) * b2C / 1e6 // each process signs in
		}
		table += fmt.Sprintf("| %s | %s | %.1f | %.1f | %.3f |\n", c.name, grouped(all.requests), float64(all.sent)/1e6, float64(all.received)/1e6, dollars)
	}
	assert.That(t, strings.Contains(page, table), "docs/evidence/costs.md doesn't have this table:\n%s", table)
}

// stepIn returns a row of the page.
func stepIn(t *testing.T, page, name string) (w traffic) {
	t.Helper()
	row := regexp.MustCompile(regexp.QuoteMeta("| "+name+" |") + ` (\d+) \| (\d+) \| (\d+) \|`).FindStringSubmatch(page)
	if row == nil {
		t.Fatalf("docs/evidence/costs.md has no row %q", name)
	}
	for i, to := range []*int{&w.requests, &w.sent, &w.received} {
		*to, _ = strconv.Atoi(row[i+1])
	}
	return w
}
