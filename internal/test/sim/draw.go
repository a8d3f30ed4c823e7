package sim

import (
	"fmt"
	"slices"
	"time"

	"github.com/repolock/repolock/replock"
	"github.com/repolock/repolock/store/mem"
)

func (p *plan) drawStore(config *Config, d dice) {
	if config.has(Conditions) && d.of(1).chance(.6) {
		p.store.IfAbsent = pick(d.of(2), mem.Kept, mem.Claimed, mem.Ignored, mem.Lacked)
		p.store.IfMatch = pick(d.of(3), mem.Kept, mem.Claimed, mem.Ignored, mem.Lacked)
		p.store.Versions = p.store.IfAbsent == mem.Lacked && p.store.IfMatch == mem.Lacked && d.of(4).chance(.5)
		p.store.Markers = d.of(15).chance(.15)
	}
	if config.has(Poor) {
		p.store.Precision = pick(d.of(5), 0, time.Second)
		p.store.NoTime = d.of(6).chance(.3)
		p.store.NoStoreClock = d.of(7).chance(.1)
		p.stale = p.store.NoStoreClock && d.of(14).chance(.5)
	}
	if config.has(Pages) && d.of(8).chance(.4) {
		p.store.PageSize = 1 + d.of(9).below(3)
	}
	if config.has(Gateways) && d.of(10).chance(.3) {
		p.gateways = 400 * time.Millisecond
	}
	if config.has(StoreJump) && d.of(11).chance(.1) && !p.store.NoStoreClock && !p.mild {
		p.storeJump = pick(d.of(12), time.Hour, -time.Hour, time.Minute, -time.Minute)
		p.storeJumpAt = d.of(13).between(0, 3*time.Minute)
		if p.deceptive() {
			p.rates[Late], p.rates[Twice] = 0, 0
		}
	}
}

// deceptive reports whether the store's clock can be ahead. Two witnesses show when a lock is
// stale, and the engine doesn't survive it if both are wrong. The second is the body, and a
// late or repeated put makes it older than it is: so there are no such puts. (A directory
// writes nothing once the request's time is over.)
func (p *plan) deceptive() bool { return p.storeJump > 0 || p.local }

// common is what the clients of a history have in common.
type common struct {
	ttl    time.Duration
	mixed  bool // each client has its own ttl
	walls  bool // wall clocks are wrong
	queues bool // the engine waits, in place of the client
	// comeback: the first client comes back from an outage when others can pass its lock.
	comeback bool
}

func (p *plan) drawClients(config *Config, d dice) {
	all := common{
		ttl:   pick(d.of(1), 10*time.Second, 10*time.Second, 30*time.Second, time.Minute),
		mixed: d.of(2).chance(.15),
		// For the same reason wall clocks are wrong only if the store's clock isn't.
		walls:    config.has(Skew) && d.of(3).chance(.3) && p.storeJump == 0 && !p.mild,
		comeback: !p.mild && config.has(Outage) && !config.Apart && d.of(6).chance(.4),
		queues:   config.Protocol == nil && d.of(8).chance(.3),
	}
	if all.ttl < time.Minute || all.mixed {
		p.latency = min(p.latency, 80*time.Millisecond)
	}
	if !all.walls {
		p.rates[Jump] = 0
	}
	if all.comeback && config.has(Slow) { // the client that passes must meet the one that comes back
		p.rates[Slow] = .1
	}
	machines := 0
	for n := range uint64(2 + d.of(4).below(4)) {
		d := d.of(5, n)
		c := p.drawClient(config, &all, d)
		if machines > 0 && d.of(3).chance(.2) {
			c.machine = machines - 1 // the machine before
			if d := d.named("namespace"); config.has(Namespaces) && d.of(1).chance(.2) {
				c.contain(int(n), d.of(2))
			}
		} else {
			c.machine = machines
			machines++
		}
		p.drawSteps(config, &all, &c, n, d)
		p.clients = append(p.clients, c)
	}
	low, high := time.Duration(0), time.Duration(0)
	for n, c := range p.clients {
		if n > 0 && c.machine == p.clients[n-1].machine {
			p.clients[n].skew = p.clients[n-1].skew
		}
		low, high = min(low, c.skew), max(high, c.skew)
	}
	p.spread = high - low
}

func (p *plan) drawClient(config *Config, all *common, d dice) clientPlan {
	c := clientPlan{ttl: all.ttl, noDelete: config.has(NoDelete) && d.of(1).chance(.07) && !p.mild}
	if all.mixed {
		c.ttl = pick(d.of(2), 10*time.Second, 30*time.Second, time.Minute, 3*time.Minute)
	}
	if all.walls {
		c.skew = pick(d.of(4), 0, time.Hour, -time.Hour, 2*time.Minute, -2*time.Minute)
	}
	if config.has(Outage) && d.of(5).chance(.2) && !p.mild {
		c.outage.from = d.of(6).between(0, 3*all.ttl)
		c.outage.to = c.outage.from + d.of(7).between(0, 3*all.ttl)
	}
	return c
}

// drawSteps draws the steps of the nth client.
func (p *plan) drawSteps(config *Config, all *common, c *clientPlan, n uint64, d dice) {
	for s := range uint64(1 + d.of(8).below(3)) {
		name := fmt.Sprintf("c%d.%d", n+1, s+1)
		drawn := drawStep(name, c.ttl, d.of(9, s))
		comeback := all.comeback && s == 0
		if comeback {
			c.comeback(n, &drawn, p.latency, d.of(10))
		}
		drawn.queues = all.queues && !comeback && drawn.patience > 0 && d.of(11, s).chance(.7)
		if c.noDelete && !drawn.queues {
			drawn.patience = 0 // each try leaves an empty flag
		}
		if config.Apart {
			drawn.apart(n, s)
		}
		if !slices.Contains(config.Without, name) {
			c.steps = append(c.steps, drawn)
		}
	}
	if slices.Contains(config.Without, fmt.Sprintf("c%d", n+1)) {
		c.steps = nil
	}
}

func drawStep(name string, ttl time.Duration, d dice) step {
	return step{
		name: name,
		wait: pick(d.of(1), d.of(2).within(time.Second), d.of(2).within(time.Second), d.of(2).between(0, ttl), d.of(2).between(0, 2*ttl)),
		mode: pick(d.of(3), replock.Shared, replock.Exclusive),
		hold: pick(d.of(4), 0, d.of(5).within(time.Second), d.of(5).between(0, ttl), d.of(5).between(0, 4*ttl)),

		resume: d.of(6).chance(.7),
		check:  d.of(7).chance(.2), confirm: d.of(10).chance(.2),
		quits: d.of(11).chance(.1),
		fence: d.of(12).chance(.08),

		patience: pick(d.of(8), 0, ttl, 2*ttl),
		pause:    d.of(9).between(ttl/20, ttl/4),
	}
}

// apart has the first client hold its lock from the beginning, and the others try
// a while later.
func (s *step) apart(client, nth uint64) {
	switch {
	case client == 0 && nth == 0:
		s.wait, s.hold = 0, 10*time.Minute
	case client > 0:
		s.wait = 20*time.Second + time.Duration(client)*30*time.Second + s.wait%(10*time.Second)
		s.mode = replock.Exclusive
	}
}

// comeback ends the first client's outage just when the others, which wait for its lock, can
// pass it.
func (c *clientPlan) comeback(client uint64, s *step, latency time.Duration, d dice) {
	if client == 0 {
		// Before the first refresh, or in the middle of it: then its requests arrive late.
		c.outage.from = pick(d.of(1), d.of(5).between(c.ttl/20, c.ttl*2/5), c.ttl/2+d.of(5).between(latency, 4*latency))
		// When others can just pass, 2 s after the ttl; or when they have.
		c.outage.to = c.ttl + pick(d.of(2), d.of(6).between(1900*time.Millisecond, 3200*time.Millisecond), d.of(6).between(1900*time.Millisecond, 3200*time.Millisecond),
			d.of(6).between(4*time.Second, 7*time.Second))
		s.wait, s.hold, s.resume = 0, 4*c.ttl, true
		return
	}
	s.wait, s.patience = d.of(1).between(c.ttl, c.ttl+3*time.Second), 5*time.Second
	s.pause = d.of(2).between(50*time.Millisecond, 500*time.Millisecond)
	s.hold = d.of(3).within(time.Second)
}

func drawLeftover(config *Config, d dice) leftover {
	l := leftover{
		mode: pick(d.of(1), replock.Shared, replock.Exclusive),
		flag: d.of(2).chance(.7),
		ttl:  pick(d.of(3), 10*time.Second, time.Minute),
	}
	l.age = d.of(4).between(0, 2*l.ttl)
	l.foreign, l.empty = d.of(5).chance(.3), d.of(6).chance(.2)
	if l.foreign {
		l.ttl = time.Minute
	}
	if config.has(Skew) && d.of(7).chance(.2) {
		l.skew = pick(d.of(8), 2*time.Minute, -2*time.Minute)
	}
	return l
}
