package sim

import (
	"time"

	"github.com/repolock/repolock/replock"
)

// stageCrowd: up to a hundred clients want one lock, most of them at almost one time. Some wait for it, for long or for a
// moment, some try once or again and again, and some end their wait. In half of the histories nothing goes wrong.
// Otherwise some are killed, and some are cut off, perhaps all of them at once.
func (p *plan) stageCrowd(config *Config, d dice) {
	ttl := pick(d.of(1), 30*time.Second, time.Minute, time.Minute)
	p.latency = pick(d.of(2), 100*time.Microsecond, 22*time.Millisecond, 22*time.Millisecond) // a trip takes 0.3 or 40 ms
	if d.of(3).chance(.2) {
		ttl, p.latency = time.Minute, 220*time.Millisecond // 400 ms
	}
	p.store.PageSize = pick(d.of(4), 1000, 1000, 1000, 1000, 1000, 1000, 1000, 7)
	p.leftovers, p.freezes, p.gateways, p.storeJump, p.spread = nil, nil, 0, 0, 0
	healthy := p.rates == [kinds]float64{}
	p.rates = [kinds]float64{}
	n := 5 + d.of(5).below(16)
	switch at := d.of(6).unit(); {
	case at < .04:
		n = 50 + d.of(5).below(51)
	case at < .15:
		n = 20 + d.of(5).below(31)
	}
	c := crowding{
		shared: pick(d.of(7), 0, .5, .5, .5, .9, 1),
		span:   pick(d.of(8), 0, time.Second, 10*time.Second, ttl),
		hold:   pick(d.of(9), 0, 100*time.Millisecond, time.Second),
		waits:  pick(d.of(10), 1, .7, .7),
	}
	s := make([]step, n)
	for i := range s {
		s[i] = c.step(ttl, d.of(11, uint64(i)))
	}
	p.cast(config, ttl, s...)
	if d.of(12).chance(.3) { // a client comes again
		for i := range p.clients {
			p.clients[i].again(&c, d.of(13, uint64(i)), config)
		}
	}
	if healthy {
		return
	}
	p.failings(config, ttl, d.of(14))
}

// failings kill and cut off some clients of a crowd.
func (p *plan) failings(config *Config, ttl time.Duration, d dice) {
	for _, k := range []Kind{Crash, Lost, Unanswered, Late, Busy, Slow} {
		if config.has(k) && d.of(1, uint64(k)).chance(.4) {
			p.rates[k] = pick(d.of(2, uint64(k)), .001, .003, .01)
		}
	}
	if !config.has(Outage) {
		return
	}
	at := func(d dice) span {
		from := d.of(1).between(0, 2*ttl)
		return span{from, from + pick(d.of(2), d.of(3).within(ttl/4), d.of(3).between(0, ttl/2), d.of(3).between(0, 2*ttl))}
	}
	store := d.of(3).chance(.25) // its outage is everybody's
	for i := range p.clients {
		switch d := d.of(4, uint64(i)); {
		case store:
			p.clients[i].outage = at(d.of(5))
		case d.of(6).chance(.1):
			p.clients[i].outage = at(d.of(7))
		}
	}
}

// crowding is what the clients of a crowd have in common.
type crowding struct {
	shared, waits float64       // the shares of shared locks, and of clients that wait
	span          time.Duration // in which they come
	hold          time.Duration // up to this
}

// step draws one lock of a client.
func (c *crowding) step(ttl time.Duration, d dice) step {
	s := step{
		wait: d.of(1).between(0, c.span), mode: replock.Exclusive, hold: d.of(2).within(c.hold + 2*time.Millisecond),
		patience: 8 * ttl, queues: true, resume: d.of(3).chance(.5),
	}
	if d.of(4).chance(c.shared) {
		s.mode = replock.Shared
	}
	if d.of(5).chance(.05) {
		s.hold = d.of(6).between(0, ttl)
	}
	switch at := d.of(7).unit(); {
	case d.of(8).chance(c.waits):
		if at < .2 {
			s.patience = d.of(9).between(0, ttl)
		}
	case at < .5: // tries once
		s.patience, s.queues = 0, false
	default: // again and again
		s.patience, s.queues, s.pause = ttl, false, d.of(10).between(50*time.Millisecond, 5*time.Second)
	}
	if at := d.of(11); at.chance(.1) {
		s.within = d.of(12).between(0, ttl)
	}
	return s
}

// again adds a second lock of a client.
func (c *clientPlan) again(all *crowding, d dice, config *Config) {
	if len(c.steps) == 0 {
		return
	}
	s := all.step(c.ttl, d)
	s.name = c.steps[0].name[:len(c.steps[0].name)-1] + "2"
	s.wait = d.of(20).between(0, time.Second)
	if config.keeps(s.name) {
		c.steps = append(c.steps, s)
	}
}
