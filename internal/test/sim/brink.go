package sim

import "time"

// brink is an outage that ends shortly before the deadline of a held lock.
type brink struct {
	from time.Duration // after the lock was granted
	to   time.Duration // before the deadline
	hang float64       // how likely a request gets no answer, as opposed to a refusal
}

// stageBrink: the holder is cut off until shortly before its deadline.
func (p *plan) stageBrink(config *Config, d dice) {
	p.quiet()
	p.latency = min(p.latency, 80*time.Millisecond)
	ttl := pick(d.of(1), time.Minute, time.Minute, time.Minute, 3*time.Minute)
	switch at := d.of(2).unit(); {
	case at < .05:
		ttl = time.Hour
	case at < .055:
		ttl = 24 * time.Hour
	}
	holder := drawStep("", ttl, d.of(3))
	holder.wait, holder.hold, holder.queues = 0, ttl+ttl/2, false
	p.cast(config, ttl, holder)
	c := &p.clients[0]
	c.brink = brink{from: d.of(4).between(0, ttl*4/5), to: d.of(5).between(5*time.Second, 6*time.Second), hang: pick(d.of(6), 0, .5, 1)}
}

// edge is a client's outage that ends shortly before its lock's deadline.
type edge struct {
	lock     Held
	from, to time.Time
}

// approach begins the outage that is planned for a held lock.
func (c *client) approach(k Held) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.plan.brink.to > 0 && c.edge.lock == nil {
		c.edge = edge{lock: k, from: time.Now().Add(c.plan.brink.from)}
	}
}

// onTheBrink reports whether the outage lasts.
func (c *client) onTheBrink() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	e, now := &c.edge, time.Now()
	if e.lock == nil || now.Before(e.from) {
		return false
	}
	if e.to.IsZero() {
		e.to = now.Add(e.lock.Deadline() - c.clock.Elapsed() - c.plan.brink.to)
	}
	return now.Before(e.to)
}
