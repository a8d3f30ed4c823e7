package sim

import (
	"fmt"
	"slices"
	"strings"
)

// stageSeveral: each client takes several locks at once, of one Locker or of several, of one
// name or of several, and asks for them while they are refreshed.
func (p *plan) stageSeveral(config *Config, d dice) {
	for n := range p.clients {
		c, d := &p.clients[n], d.of(uint64(n))
		threads := 1 + d.of(1).below(3)
		lockers := d.of(2).chance(.5)
		for thread := range threads {
			for s := range uint64(1 + d.of(3, uint64(thread)).below(2)) {
				if thread == 0 {
					break // has its steps
				}
				name := fmt.Sprintf("c%d.%d", n+1, 10*thread+int(s))
				drawn := drawStep(name, c.ttl, d.of(4, uint64(thread), s))
				drawn.thread = thread
				if c.noDelete {
					drawn.patience = 0
				}
				if !slices.Contains(config.Without, name) && !slices.Contains(config.Without, fmt.Sprintf("c%d", n+1)) {
					c.steps = append(c.steps, drawn)
				}
			}
		}
		for i := range c.steps {
			s, d := &c.steps[i], d.of(5).named(c.steps[i].name)
			s.lock = pick(d.of(1), "", "", "other", "other", "third")
			if lockers {
				s.locker = s.thread
			}
			if d.of(2).chance(.5) {
				s.meddles = 1 + d.of(3).below(4)
			}
			s.quits = d.of(4).chance(.3)
		}
	}
	for n := range p.breaks {
		if b := &p.breaks[n]; !b.foreign {
			b.lock = pick(d.named("breaks").of(uint64(n)), "", "other", "other")
		}
	}
	for n := range p.leftovers {
		if l := &p.leftovers[n]; !l.foreign {
			l.lock = pick(d.named("leftovers").of(uint64(n)), "", "other", "third")
		}
	}
}

// strays checks that a break-lock of one lock removes nothing of another.
func (w *world) strays(p *process, r request) {
	if w.config.Protocol == nil && p.client == w.janitor && r.scope != "" && !strings.HasPrefix(r.key, r.scope) {
		w.violate("overbroken", fmt.Sprintf("break-lock of %s removes %s", r.scope, w.name(r.key)))
	}
}
