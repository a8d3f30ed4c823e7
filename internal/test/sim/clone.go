package sim

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/repolock/repolock/replock"
	"github.com/repolock/repolock/store"
	"github.com/repolock/repolock/store/memory"
)

// cloning is a copy of the first client's machine, with its memory: when it is taken, and how much later it continues.
// Until then its clocks stand still.
type cloning struct {
	at, later time.Duration
}

// twins are the first client and its copy. A running process can't be copied, so both run from the beginning with the
// same name, clocks and random numbers. Until they part, the copy sends nothing: it gets the answer to each request of
// the first client at the same time. So it is in the same state when they part.
type twins struct {
	part  time.Time
	later time.Duration
	first *client
	copy  *client

	mu      sync.Mutex
	answers map[string]*answer

	replaced time.Time // when one of them first replaced an object of the other
	turned   time.Time // when one of them last did
}

// answer is the answer to a request of the first client.
type answer struct {
	done chan struct{}
	v    any
	err  error
}

// of returns the answer to the nth request that looks like this one.
func (t *twins) of(looks string, n int) *answer {
	t.mu.Lock()
	defer t.mu.Unlock()
	id := fmt.Sprint(looks, " ", n)
	if t.answers[id] == nil {
		t.answers[id] = &answer{done: make(chan struct{})}
	}
	return t.answers[id]
}

func (t *twins) parted() bool { return !time.Now().Before(t.part) }

// other returns the client's twin, once they have parted, or nil.
func (c *client) other() *client {
	switch {
	case c == nil || c.twins == nil || !c.twins.parted():
		return nil
	case c == c.twins.first:
		return c.twins.copy
	default:
		return c.twins.first
	}
}

// follows reports whether the client is a copy that only follows the first client.
func (c *client) follows() bool { return c.twins != nil && c == c.twins.copy && !c.twins.parted() }

// diverge returns other dice for the copy, once it has parted.
func (c *client) diverge(d dice) dice {
	if c.twins != nil && c == c.twins.copy && c.twins.parted() {
		return d.named("copy")
	}
	return d
}

// publish hands the answer to a request of the first client to its copy.
func (c *client) publish(looks string, n int, v any, err error) {
	if c.twins == nil || c != c.twins.first {
		return
	}
	a := c.twins.of(looks, n)
	switch all := v.(type) {
	case store.Page: // the engine changes it
		all.Objects, all.Bodies = slices.Clone(all.Objects), maps.Clone(all.Bodies)
		v = all
	case []bool:
		v = slices.Clone(all)
	}
	a.v, a.err = v, err
	close(a.done)
}

// follow is a request of a copy that has not parted yet. An answer that comes after that can be lost, as the connection
// of a copied machine is.
func (c *client) follow(looks string, n int, d dice) (any, error) {
	a := c.twins.of(looks, n)
	<-a.done
	if c.follows() {
		return a.v, a.err
	}
	time.Sleep(nanoseconds(d.of(30)) + 1)
	c.clock.awake(d.of(31))
	if d.of(32).chance(.5) {
		return nil, errReset
	}
	return a.v, a.err
}

// clone adds the copy of the first client.
func (w *world) clone(first *client) *client {
	p := *first.plan
	p.steps = slices.Clone(p.steps)
	for n := range p.steps {
		p.steps[n].name += copyOf
	}
	m := &machine{host: first.machine.host, booted: first.machine.booted, skew: first.machine.skew}
	c := w.newClient(first.number, first.name, &p, m)
	c.title = first.name + copyOf
	t := &twins{part: w.start.Add(w.plan.clone.at), later: w.plan.clone.later, first: first, copy: c, answers: map[string]*answer{}}
	first.twins, c.twins = t, t
	c.clock.parted = func() bool { return t.parted() }
	return c
}

// copyOf marks the names of a copy and of its steps.
const copyOf = "'"

// operation is what the step's lock is for. That of a copy is the same.
func (s step) operation() string { return strings.TrimSuffix(s.name, copyOf) }

// remembers makes the copy's last looks those of the first client, because the copy has its memory.
func (w *world) remembers(t *twins) {
	for at, saw := range maps.Clone(w.turns) {
		if saw == t.first {
			saw = t.copy
		}
		if at.client == t.first.name && !strings.HasSuffix(at.step, copyOf) {
			at.step += copyOf
			w.turns[at] = saw
		}
	}
}

// parts lets the two part: from then on the monitor follows the copy, which continues later.
func (t *twins) parts(w *world) {
	time.Sleep(time.Until(t.part))
	if w.ctx.Err() != nil {
		return
	}
	w.fired(Clone)
	w.trace(t.copy, "~~~ is a copy of %s from now on, which continues %v later", t.first.name, t.later.Round(time.Millisecond))
	if t.later > 0 {
		w.freeze(t.copy.machine, t.later, 0)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.remembers(t)
	for _, h := range w.following {
		if h.held() {
			h.began = time.Now()
			w.all, w.active = append(w.all, h), append(w.active, h)
		}
	}
	w.check()
}

// turnover returns a function that notes the effect of a twin's request once it is applied. If the request replaces an
// object of the other twin, or one that both have written, one of the two must lose its lock. A put from before they
// parted is both twins', and replaces nothing. If the request deletes an object, the other's lock is broken.
func (w *world) turnover(c *client, r *request) func() {
	was := w.present[r.key]
	if c.other() == nil || !r.writes() || !isLock(r.key) || was.client != c && was.client != c.other() {
		return func() {}
	}
	raw, _, err := w.mem.Get(context.Background(), r.key, 1<<20)
	if err != nil || len(raw) == 0 {
		return func() {}
	}
	return func() {
		t, now := c.twins, time.Now()
		switch {
		case r.op != "put" || len(r.body) == 0:
			w.broken[objectName(r.key, raw)] = now
		case !r.handed.Before(t.part) && (was.client == c.other() || was.handed.Before(t.part)):
			t.turned = now
			if t.replaced.IsZero() {
				t.replaced = now
			}
		}
	}
}

// twinned checks two locks of twins that are both live, and reports whether they are of twins. Until one of the two
// has written, neither can know of the other. After that, the other's next look or refresh ends one of the two. If no
// condition is kept, each can overwrite the other once.
func (w *world) twinned(h, g *holding) bool {
	if h.p.client.other() != g.p.client {
		return false
	}
	t := h.p.client.twins
	if t.replaced.IsZero() {
		return true
	}
	window := lookInterval + tick + 2*w.plan.roundTrip()
	if !w.plan.steady() {
		window = h.p.client.plan.ttl + tick + grace
	}
	from := later(later(h.began, g.began), later(t.copy.machine.lags().over, t.turned))
	if ago := time.Since(from); ago > window {
		w.violate("cloned", fmt.Sprintf("%v and %v are both live %v after one has replaced the other's object", h, g, ago.Round(time.Millisecond)))
	}
	if ago := time.Since(later(later(h.began, g.began), later(t.copy.machine.lags().over, t.replaced))); ago > 3*window {
		w.violate("cloned", fmt.Sprintf("%v and %v replace each other's objects for %v", h, g, ago.Round(time.Millisecond)))
	}
	return true
}

// stageClone: the first client's machine is cloned while it holds a lock, waits for it, acquires it or resumes it. The
// copy continues at once, or up to an hour later. Others want the lock.
func (p *plan) stageClone(config *Config, d dice) {
	p.latency = min(p.latency, 80*time.Millisecond)
	p.storeJump, p.gateways, p.leftovers, p.breaks, p.freezes, p.reboots = 0, 0, nil, nil, nil, nil
	for _, k := range []Kind{Pause, Suspend, Crash, Jump, Freeze} { // they would strike only one of the two
		p.rates[k] = 0
	}
	ttl := pick(d.of(2), 10*time.Second, 10*time.Second, 30*time.Second, time.Minute)
	s := make([]step, 2+d.of(3).below(2))
	for n := range s {
		d := d.of(4, uint64(n))
		s[n] = drawStep("", ttl, d)
		s[n].meddles, s[n].quits, s[n].queues = 0, false, false
		s[n].wait, s[n].patience, s[n].pause = d.of(20).between(time.Second, 2*ttl), 4*ttl, d.of(21).between(50*time.Millisecond, 2*time.Second)
		s[n].queues = d.of(22).chance(.4)
	}
	if s[0].mode == replock.Shared {
		s[1].mode = replock.Exclusive
	}
	c := &cloning{later: pick(d.of(5), 0, 0, 0, d.of(6).within(time.Second), d.of(6).between(0, 3*ttl), d.of(6).between(0, 3*ttl), time.Hour)}
	s[0].hold, s[0].check, s[0].confirm = pick(d.of(7), d.of(8).between(0, 2*ttl), 4*ttl), false, d.of(9).chance(.5)
	outage := span{}
	switch {
	case d.of(10).chance(.4): // a holder
		s[0].wait, c.at = 0, d.of(11).between(0, 2*ttl)
		if c.later == time.Hour && d.of(12).chance(.2) {
			s[0].hold = time.Hour + 2*ttl
		}
	case d.of(13).chance(.4): // an acquirer
		s[0].wait, c.at = time.Second, time.Second+d.of(14).within(12*p.latency)
		s[1].wait = d.of(15).between(0, 2*time.Second)
	case d.of(16).chance(.5): // a waiter
		s[1].wait, s[1].hold = 0, d.of(17).between(time.Second, ttl)
		s[1].mode, s[0].wait, s[0].patience, s[0].queues = replock.Exclusive, time.Second/2, 4*ttl, true
		c.at = d.of(18).between(time.Second/2, s[1].hold+time.Second)
	default: // a resumer
		s[0].wait, s[0].hold, s[0].resume = 0, 4*ttl, true
		outage = span{d.of(19).between(ttl/20, ttl/2), ttl + d.of(20).between(0, ttl/2)}
		c.at = outage.to + d.of(23).between(-time.Second, 3*time.Second)
		s[1].wait = d.of(24).between(ttl, 3*ttl)
	}
	p.cast(config, ttl, s...)
	if config.has(Outage) && outage.to > 0 {
		p.clients[0].outage = outage
	}
	p.clone = c
	if len(p.clients[0].steps) == 0 {
		p.clone = nil
	}
	if config.has(Conditions) && d.of(25).chance(.5) {
		p.store.IfAbsent = pick(d.of(26), memory.Kept, memory.Claimed, memory.Ignored, memory.Lacked)
		p.store.IfMatch = pick(d.of(27), memory.Kept, memory.Claimed, memory.Ignored, memory.Lacked)
		p.store.Versions = p.store.IfAbsent == memory.Lacked && p.store.IfMatch == memory.Lacked && d.of(28).chance(.5)
	}
}

// lasts is how much longer than others a history with a clone takes.
func (p *plan) lasts() time.Duration {
	if p.clone == nil {
		return 0
	}
	return 2 * p.clone.later
}
