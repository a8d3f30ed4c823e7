package sim

import (
	"time"

	"github.com/repolock/repolock/store"
)

// stageLocal: the store is a directory of the one machine that all clients run on. Its
// wall clock is the store's, and steps. Some clients are in containers with a time namespace of
// their own, others on machines that it serves the directory to, or of the original protocol. The
// machine is paused, or reboots.
func (p *plan) stageLocal(config *Config, d dice) {
	p.local = true
	p.leftovers, p.freezes, p.reboots, p.storeJump, p.gateways, p.spread = nil, nil, nil, 0, 0, 0
	p.store.NoStoreClock, p.store.MachineClock = false, true
	p.rates[Late], p.rates[Twice] = 0, 0 // see deceptive
	p.rates[Freeze] = 0
	steps := []time.Duration{0}
	if config.has(Jump) {
		p.rates[Jump] = pick(d.of(1), .01, .03)
		steps = []time.Duration{0, time.Hour, -time.Hour, 20 * time.Hour}
	}
	contained := config.has(Namespaces) && d.of(6).chance(.4)
	for n := range p.clients {
		c := &p.clients[n]
		c.machine, c.skew, c.namespace, c.shift = 0, 0, 0, 0
		if d := d.of(7, uint64(n)); contained && d.of(1).chance(.6) {
			c.contain(n, d.of(2))
		}
		if config.has(Outage) && n == 0 && d.of(2).chance(.6) {
			c.outage.from = d.of(3).between(0, c.ttl)
			c.outage.to = c.outage.from + d.of(4).between(0, 3*c.ttl)
			c.hold(d.of(5))
		}
	}
	served := d.of(20).chance(.25)
	if served {
		last := &p.clients[len(p.clients)-1]
		last.machine, last.namespace, last.shift = len(p.clients), 0, 0
	}
	p.drawReboots(config, d.of(8), .2, steps...)
	if config.has(Freeze) && !served && d.of(9).chance(.2) {
		f := planned{at: d.of(10).between(0, 2*p.ttl()), long: d.of(11).between(p.ttl()/10, 2*p.ttl())}
		if d.of(12).chance(.6) {
			f.set = d.of(13).within(30 * time.Second)
		}
		p.freezes = []planned{f}
	}
	if config.has(Leftovers) && d.of(14).chance(.3) {
		l := drawLeftover(config, d.of(15))
		l.here, l.foreign, l.empty, l.skew = d.of(16).chance(.7), false, false, 0
		l.age = min(l.age, 50*time.Second) // the machine is up for a minute at least
		p.leftovers = []leftover{l}
	}
	if config.has(Foreign) && d.of(17).chance(.25) {
		p.stageForeign(config, d.of(18))
		p.sealed = config.has(Sealed) && d.of(19).chance(.5)
	}
}

// properties are those that a directory has for a client. On a machine that it is served to, the
// backend can't know whose clock stamps its files.
func (p *plan) properties(c *clientPlan, all store.Properties) store.Properties {
	if p.local && c.machine != 0 {
		all.StoreClock, all.MachineClock = false, false
		all.IfAbsent, all.IfMatch = min(all.IfAbsent, store.Claimed), min(all.IfMatch, store.Claimed)
	}
	return all
}
