package sim

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/repolock/repolock/replock"
	"github.com/repolock/repolock/store"
	"github.com/repolock/repolock/store/memory"
)

// scenes are the subjects of some histories: circumstances that are too rare to arise by
// themselves. Each is drawn with its share; most histories have none. With -scene each history
// has that one. The share quiet of these histories has no other fault.
var scenes = []struct {
	kind         Kind
	share, quiet float64
	stage        func(p *plan, config *Config, d dice)
}{
	{Frozen, .04, .5, (*plan).stageFrozen},
	{Creates, .03, .5, (*plan).stageCreates},
	{Refuses, .02, .5, (*plan).stageRefuses},
	{Crawl, .06, 0, (*plan).stageCrawl},
	{Duel, .04, 1, (*plan).stageDuel},
	{Foreign, .05, 0, (*plan).stageForeign},
	{Several, .06, 0, (*plan).stageSeveral},
	{Brink, .015, 1, (*plan).stageBrink},
	{Local, .03, 0, (*plan).stageLocal},
	{Evict, .02, 1, (*plan).stageEvict},
	{Unclock, .02, .8, (*plan).stageUnclock},
	{Sealed, .03, .5, (*plan).stageSealed},
	{Fenced, .03, .3, (*plan).stageFenced},
	{Clone, .03, .5, (*plan).stageClone},
	{Reaped, 0, .6, (*plan).stageReaped}, // each has four times the requests of others: make histories runs them
	{Stepped, 0, 1, (*plan).stageStepped},
	{Crowd, 0, .5, (*plan).stageCrowd}, // see -crowds
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
				if d.of(2, 1).chance(s.quiet) {
					p.quiet()
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

// cast replaces the clients of a history by clients on different machines, with one step each.
func (p *plan) cast(config *Config, ttl time.Duration, steps ...step) {
	p.clients, p.reboots = nil, nil
	p.breaks = slices.DeleteFunc(p.breaks, func(b breaking) bool { return b.at > 4*ttl })
	for n, s := range steps {
		c := clientPlan{machine: n, ttl: ttl}
		s.name = fmt.Sprintf("c%d.1", n+1)
		if config.keeps(s.name) {
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

// stageStepped: the store's clock is set forward by more than the ttl while the first client holds its lock, and perhaps
// back. Later an outage costs it the lock, in most histories, and it resumes. Others want the lock.
func (p *plan) stageStepped(config *Config, d dice) {
	ttl := pick(d.of(1), 10*time.Second, 30*time.Second, time.Minute)
	p.latency = min(p.latency, ttl/100)
	p.store.NoStoreClock = false
	s := make([]step, 2+d.of(2).below(2))
	for n := range s {
		d := d.of(3, uint64(n))
		s[n] = drawStep("", ttl, d)
		s[n].quits, s[n].fence = false, false
		if n == 0 {
			s[n].wait, s[n].hold, s[n].queues, s[n].resume = 0, 8*ttl, false, true
			continue
		}
		s[n].wait, s[n].hold = d.of(20).between(0, 3*ttl), d.of(21).within(ttl)
		s[n].queues = d.of(22).chance(.4)
	}
	p.cast(config, ttl, s...)
	if config.has(StoreJump) {
		p.storeJump = pick(d.of(4), ttl+d.of(5).between(0, ttl/2), 2*ttl, time.Hour, 30*time.Hour)
		p.storeJumpAt = d.of(6).between(0, 4*ttl)
		if d.of(7).chance(.4) {
			p.storeBackAt = p.storeJumpAt + d.of(8).within(2*ttl)
		}
	}
	if config.has(Outage) && d.of(9).chance(.7) {
		from := p.storeJumpAt + d.of(10).between(ttl, 3*ttl)
		p.clients[0].outage = span{from, from + d.of(11).between(ttl, 2*ttl)}
	}
}

// stageCreates: a store that makes an object where If-Match finds none, as MinIO did until
// September 2025, and a client that breaks locks.
func (p *plan) stageCreates(config *Config, d dice) {
	p.store.IfMatch, p.store.IfMatchCreates, p.store.Versions = memory.Claimed, true, false
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
	p.store.IfMatch, p.store.Versions, p.refuses = memory.Claimed, false, true
	p.clients[0].hold(d.of(2))
}

// stageDuel: two clients come at almost one time, and don't wait.
func (p *plan) stageDuel(config *Config, d dice) {
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
	ttl := pick(d.of(1), time.Minute, 3*time.Minute)
	p.latency = 300 * time.Millisecond // so that two tries overlap
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

// stageUnclock: the holder's outage ends when others can just have passed its lock. The store has no clock, so
// they watch the lock before. Requests from the outage arrive late, with the mod time of their send.
func (p *plan) stageUnclock(config *Config, d dice) {
	p.latency = min(p.latency, 80*time.Millisecond)
	p.store.NoStoreClock, p.stale = true, d.of(2).chance(.8)
	if config.has(Conditions) { // if the store keeps If-Match, no put brings an object back
		p.store.IfMatch = pick(d.of(7), memory.Claimed, memory.Ignored, memory.Lacked)
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

// brink is an outage that ends shortly before the deadline of a held lock.
type brink struct {
	from time.Duration // after the lock was granted
	to   time.Duration // before the deadline
	hang float64       // how likely a request gets no answer, as opposed to a refusal
}

// stageBrink: the holder is cut off until shortly before its deadline.
func (p *plan) stageBrink(config *Config, d dice) {
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

// deleteAll is the request to delete many objects.
const deleteAll = "delete all"

// DeleteAll sends. The store deletes one object after another, and not all of them: it can
// refuse some, leave some out of its answer, or fail half-way.
func (l *link) DeleteAll(ctx context.Context, keys []string) ([]bool, error) {
	r := &request{op: deleteAll, key: keys[0], keys: slices.Clone(keys)}
	v, err := l.sendSteps(ctx, r, func(f *mishap) (any, error) { return l.deleteEach(r, f) })
	if err != nil {
		return make([]bool, len(keys)), err
	}
	return v.([]bool), nil
}

func (l *link) deleteEach(r *request, f *mishap) ([]bool, error) {
	deleted, p, ill, d := make([]bool, len(r.keys)), l.w.plan, l.w.plan.ill, f.dice.named("each")
	if l.w.calm.Load() {
		ill = 0
	}
	if p.store.NoBatch {
		return nil, &store.Error{Op: "delete", Key: r.key, Err: store.ErrBatchUnsupported}
	}
	fails := len(r.keys)
	if d.of(1).chance(ill / 2) {
		fails = d.of(2).below(len(r.keys))
	}
	for i, key := range r.keys {
		d := d.of(3, uint64(i))
		if i == fails {
			return nil, errBroken
		}
		if d.of(1).chance(.2) { // other clients act in between
			time.Sleep(d.of(2).within(p.latency) + nanoseconds(d.of(3)))
		}
		one := *r
		one.op, one.key, one.keys = "delete", key, nil
		_, err := l.atStore(&one, f, func() (any, error) {
			switch {
			case l.p.client.plan.noDelete:
				return nil, &store.Error{Op: "delete", Key: key, Err: store.ErrPermission}
			case d.of(4).chance(ill):
				return nil, errBroken
			}
			return nil, l.w.mem.Delete(context.Background(), key)
		})
		deleted[i] = err == nil && !d.of(5).chance(ill/2) // or the answer leaves it out
	}
	return deleted, nil
}

// stageReaped: many holders have crashed, so an exclusive acquirer deletes many flags by one request. In most
// histories the first client's flag is among them, and its outage ends when the others can just have passed
// it.
func (p *plan) stageReaped(config *Config, d dice) {
	p.latency, p.store.PageSize = min(p.latency, 80*time.Millisecond), 1000
	p.store.NoBatch, p.ill = d.of(2).chance(.1), pick(d.of(3), 0, .05, .3)
	ttl := pick(d.of(4), 10*time.Second, 10*time.Second, time.Minute)
	if d.of(5).chance(.8) {
		holder, s := clientPlan{ttl: ttl}, make([]step, 2+d.of(6).below(2))
		for n := range s {
			s[n] = drawStep("", ttl, d.of(10, uint64(n)))
			holder.comeback(uint64(n), &s[n], p.latency, d.of(11, uint64(n)))
		}
		s[0].mode, s[1].mode = replock.Shared, replock.Exclusive // a shared one leaves the flags there
		p.cast(config, ttl, s...)
		if config.has(Outage) {
			p.clients[0].outage = holder.outage
		}
	}
	if !config.has(Leftovers) {
		return
	}
	p.leftovers = nil
	emptied := d.of(7).chance(.2)
	for n := range uint64(17 + d.of(8).below(8)) { // at 17 the engine begins to delete many at once
		p.leftovers = append(p.leftovers, leftover{mode: replock.Shared, flag: true, ttl: ttl, age: d.of(9, n).between(2*ttl+10*time.Second, 6*ttl), empty: emptied})
	}
}

// stageLocal: the store is a directory on the machine that all clients run on, whose wall clock is the
// store's, and steps. Some clients are in containers with time namespaces, on other machines that use the
// directory over the network, or of the original protocol. The machine is paused, or reboots.
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

// properties are a directory's properties for a client. Over the network a client can't know which clock dates
// the files.
func (p *plan) properties(c *clientPlan, all store.Properties) store.Properties {
	if p.local && c.machine != 0 {
		all.StoreClock, all.MachineClock = false, false
		all.IfAbsent, all.IfMatch = min(all.IfAbsent, store.Claimed), min(all.IfMatch, store.Claimed)
	}
	return all
}

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
				if config.keeps(name) {
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

// strays checks that break-lock of one lock removes no object of another lock.
func (w *world) strays(p *process, r *request) {
	if w.config.Protocol == nil && p.client == w.janitor && r.scope != "" && !strings.HasPrefix(r.key, r.scope) {
		w.violate("overbroken", fmt.Sprintf("break-lock of %s removes %s", r.scope, w.name(r.key)))
	}
}

// slowness is the duration of a round trip, and another one from some time on; or 0.
type slowness struct {
	rtt, then time.Duration
	change    time.Duration
}

func (s slowness) at(t time.Duration) time.Duration {
	if s.then > 0 && t >= s.change {
		return s.then
	}
	return s.rtt
}

// near reports whether round trips are long enough for an acquire to fail.
func (s slowness) near(ttl time.Duration) bool { return max(s.rtt, s.then) > ttl/60 }

// crawl draws round trips from a tenth of a second to more than a lease survives, and the
// store's abilities, on which their number depends.
func (p *plan) crawl(config *Config, ttl time.Duration, d dice) {
	const least = 100 * time.Millisecond
	p.latency = 10 * time.Millisecond // of the rest
	p.slow.rtt = time.Duration(float64(least) * math.Pow(float64(ttl/6)/float64(least), d.of(1).unit()))
	p.store.PageSize = 1000
	if config.has(Conditions) {
		p.store.IfAbsent = pick(d.of(2), memory.Kept, memory.Claimed, memory.Ignored, memory.Lacked)
		p.store.IfMatch = pick(d.of(3), memory.Kept, memory.Claimed, memory.Ignored, memory.Lacked)
		p.store.Versions = p.store.IfAbsent == memory.Lacked && p.store.IfMatch == memory.Lacked && d.of(4).chance(.5)
		p.store.Markers = d.of(5).chance(.15)
	}
}

// stageCrawl: a store that is slow, and otherwise mostly good.
func (p *plan) stageCrawl(config *Config, d dice) {
	ttl := pick(d.of(1), 10*time.Second, 30*time.Second, time.Minute, time.Minute, 3*time.Minute)
	p.crawl(config, ttl, d.of(2))
	switch {
	case d.of(3).chance(.6):
		p.quiet()
		s := make([]step, 1+d.of(4).below(2))
		for n := range s {
			s[n] = drawStep("", ttl, d.of(5, uint64(n)))
			s[n].hold = d.of(6, uint64(n)).between(ttl, 4*ttl)
			s[n].queues = d.of(7, uint64(n)).chance(.5) && s[n].patience > 0
		}
		p.cast(config, ttl, s...)
	case d.of(8).chance(.5):
		p.slow.then, p.slow.change = d.of(9).between(10*time.Millisecond, ttl/4), d.of(10).between(0, 3*ttl)
		fallthrough
	default:
		p.clients[0].hold(d.of(11))
	}
}
