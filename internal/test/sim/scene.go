package sim

import (
	"fmt"
	"slices"
	"time"

	"github.com/repolock/repolock/replock"
	"github.com/repolock/repolock/store/mem"
)

// scenes are the subjects of some histories: circumstances that are too rare to arise by
// themselves. Each is drawn with its share; most histories have none. With -scene each history
// has that one.
var scenes = []struct {
	kind  Kind
	share float64
	stage func(p *plan, config *Config, d dice)
}{
	{Frozen, .04, (*plan).stageFrozen},
	{Creates, .03, (*plan).stageCreates},
	{Refuses, .02, (*plan).stageRefuses},
	{Crawl, .06, (*plan).stageCrawl},
	{Duel, .04, (*plan).stageDuel},
	{Foreign, .05, (*plan).stageForeign},
	{Several, .06, (*plan).stageSeveral},
	{Brink, .015, (*plan).stageBrink},
	{Local, .03, (*plan).stageLocal},
	{Evict, .02, (*plan).stageEvict},
	{Unclock, .02, (*plan).stageUnclock},
	{Sealed, .03, (*plan).stageSealed},
	{Fenced, .03, (*plan).stageFenced},
	{Crowd, 0, (*plan).stageCrowd}, // each takes as many requests as four others: make histories
}

// stage draws the subject of the history, and changes the plan accordingly.
func (p *plan) stage(config *Config, d dice) {
	if config.Protocol != nil {
		return
	}
	at := d.of(1).unit()
	for _, s := range scenes {
		switch {
		case config.Scene == s.kind, config.Scene == None && at >= 0 && at < s.share:
			if config.has(s.kind) {
				p.scene = s.kind
				if s.kind != Several {
					p.mild = false
				}
				s.stage(p, config, d.of(2))
			}
			at = -1
		case config.Scene == None:
			at -= s.share
		}
	}
}

// quiet removes all faults.
func (p *plan) quiet() {
	p.rates = [kinds]float64{}
	p.gateways, p.storeJump, p.spread = 0, 0, 0
	p.leftovers, p.breaks, p.freezes, p.reboots = nil, nil, nil, nil
	for n := range p.clients {
		c := &p.clients[n]
		c.skew, c.noDelete, c.outage = 0, false, span{}
	}
}

// cast gives a history some clients, each on a machine of its own, with one step.
func (p *plan) cast(config *Config, ttl time.Duration, steps ...step) {
	p.clients, p.reboots = nil, nil
	p.breaks = slices.DeleteFunc(p.breaks, func(b breaking) bool { return b.at > 4*ttl })
	for n, s := range steps {
		c := clientPlan{machine: n, ttl: ttl}
		s.name = fmt.Sprintf("c%d.1", n+1)
		if !slices.Contains(config.Without, s.name) && !slices.Contains(config.Without, fmt.Sprintf("c%d", n+1)) {
			c.steps = append(c.steps, s)
		}
		p.clients = append(p.clients, c)
	}
}

// freezing to come: when, which machine's, for how long, and how long after it the wall
// clock is set right, or 0.
type planned struct {
	at, long, set time.Duration
	machine       int
}

// stageFrozen: the first client's machine is paused for about as long as its lock lives,
// while others want it.
func (p *plan) stageFrozen(config *Config, d dice) {
	if d.of(1).chance(.5) {
		p.quiet()
	}
	p.storeJump = 0 // otherwise both witnesses are wrong for a client with a wall clock that is behind
	ttl := p.clients[0].ttl
	s := make([]step, 2+d.of(2).below(2))
	f := planned{at: d.of(3).between(0, ttl), long: d.of(4).between(ttl*4/5, ttl*5/2)}
	if d.of(5).chance(.6) {
		f.set = d.of(6).within(30 * time.Second)
	}
	for n := range s {
		d := d.of(7, uint64(n))
		s[n] = drawStep("", ttl, d)
		if n == 0 {
			s[n].wait, s[n].hold, s[n].queues = 0, 6*ttl, false
			continue
		}
		s[n].wait, s[n].hold = f.at+d.of(20).between(ttl/2, ttl+ttl/10), d.of(21).between(0, 2*ttl)
		s[n].patience, s[n].pause = 3*ttl, d.of(22).between(50*time.Millisecond, 2*time.Second)
		s[n].queues = d.of(23).chance(.4)
	}
	if s[0].mode == replock.Shared {
		s[1].mode = replock.Exclusive
	}
	p.cast(config, ttl, s...)
	p.freezes = []planned{f}
}

// stageCreates: a store that makes an object where If-Match finds none, as MinIO did until
// September 2025, and a client that breaks locks.
func (p *plan) stageCreates(config *Config, d dice) {
	if d.of(1).chance(.5) {
		p.quiet()
	}
	p.store.IfMatch, p.store.IfMatchCreates, p.store.Versions = mem.Claimed, true, false
	p.clients[0].hold(d.of(2))
	if config.has(Break) {
		for n := range uint64(1 + d.of(3).below(3)) {
			p.breaks = append(p.breaks, breaking{at: d.of(4, n).between(0, 4*p.clients[0].ttl), foreign: d.of(5, n).chance(.2)})
		}
		slices.SortFunc(p.breaks, func(a, b breaking) int { return int(a.at - b.at) })
	}
}

// hold makes a client hold a lock for long from the beginning.
func (c *clientPlan) hold(d dice) {
	if len(c.steps) > 0 {
		s := &c.steps[0]
		s.wait, s.hold = d.of(1).within(time.Second), d.of(2).between(2*c.ttl, 5*c.ttl)
	}
}

// stageRefuses: a store that claims If-Match and refuses each.
func (p *plan) stageRefuses(_ *Config, d dice) {
	if d.of(1).chance(.5) {
		p.quiet()
	}
	p.store.IfMatch, p.store.Versions, p.refuses = mem.Claimed, false, true
	p.clients[0].hold(d.of(2))
}

// stageDuel: two clients come at almost one time, and don't wait.
func (p *plan) stageDuel(config *Config, d dice) {
	p.quiet()
	ttl := pick(d.of(1), 30*time.Second, time.Minute, time.Minute, 3*time.Minute)
	p.crawl(config, ttl, d.of(2))
	p.slow.rtt = min(p.slow.rtt, ttl/20)
	s := make([]step, 2)
	for n := range s {
		s[n] = drawStep("", ttl, d.of(3, uint64(n)))
		s[n].wait, s[n].patience, s[n].queues = d.of(4, uint64(n)).between(0, 3*p.slow.rtt), 0, false
		s[n].hold = 20 * p.slow.rtt
	}
	s[0].mode = replock.Exclusive
	s[1].mode = pick(d.of(5), replock.Exclusive, replock.Exclusive, replock.Shared)
	p.cast(config, ttl, s...)
}

// stageForeign: some of the clients are of the other kind.
func (p *plan) stageForeign(_ *Config, d dice) {
	n := len(p.clients)
	sure := d.of(1).below(n)
	for i := range n {
		if i == sure || d.of(2, uint64(i)).chance(.3) {
			c := &p.clients[i]
			c.foreign = true
			for s := range c.steps {
				c.steps[s].queues, c.steps[s].resume = false, false
			}
		}
	}
}

// stageEvict: one holds the lock, others wait for it, and a client deletes their tickets.
func (p *plan) stageEvict(config *Config, d dice) {
	p.quiet()
	ttl := pick(d.of(1), time.Minute, 3*time.Minute)
	p.latency = 300 * time.Millisecond // so that two make their attempts at one time
	s := make([]step, 3+d.of(2).below(3))
	for n := range s {
		s[n] = drawStep("", ttl, d.of(3, uint64(n)))
		s[n].check, s[n].confirm = false, false
		if n == 0 {
			s[n].wait, s[n].hold, s[n].queues = 0, 3*ttl, false
			continue
		}
		s[n].wait, s[n].patience, s[n].queues, s[n].mode = d.of(4, uint64(n)).between(time.Second, ttl), 4*ttl, true, replock.Exclusive
		s[n].hold = pick(d.of(8, uint64(n)), d.of(5, uint64(n)).within(time.Second), d.of(5, uint64(n)).between(0, ttl))
	}
	p.cast(config, ttl, s...)
	for n := range uint64(1 + d.of(6).below(3)) {
		p.breaks = append(p.breaks, breaking{at: d.of(7, n).between(time.Second, 3*ttl), tickets: d.of(9).chance(.5)})
	}
	slices.SortFunc(p.breaks, func(a, b breaking) int { return int(a.at - b.at) })
}

// stageUnclock: the holder comes back from an outage when others can just have passed it. The
// store has no clock of its own, so they watch the lock before. Requests from meanwhile arrive
// late, with the mod time of when they were sent.
func (p *plan) stageUnclock(config *Config, d dice) {
	if d.of(1).chance(.8) {
		p.quiet()
	}
	p.latency = min(p.latency, 80*time.Millisecond)
	p.store.NoStoreClock, p.stale = true, d.of(2).chance(.8)
	if config.has(Conditions) { // if the store keeps If-Match, no put brings an object back
		p.store.IfMatch = pick(d.of(7), mem.Claimed, mem.Ignored, mem.Lacked)
		p.store.Versions = false
	}
	p.storeJump, p.gateways = 0, 0
	ttl := pick(d.of(3), 10*time.Second, 10*time.Second, 10*time.Second, time.Minute)
	s := make([]step, 2+d.of(4).below(2))
	holder := clientPlan{ttl: ttl}
	for n := range s {
		s[n] = drawStep("", ttl, d.of(5, uint64(n)))
		holder.comeback(uint64(n), &s[n], p.latency, d.of(6, uint64(n)))
		s[n].queues = false
	}
	s[0].hold = 6 * ttl
	if s[0].mode == replock.Shared {
		s[1].mode = replock.Exclusive
	}
	p.cast(config, ttl, s...)
	if config.has(Outage) {
		// During the first refresh, after its look.
		p.clients[0].outage = span{ttl/2 + d.of(8).between(p.latency, 4*p.latency), holder.outage.to + ttl}
	}
}
