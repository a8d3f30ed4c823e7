package sim

import (
	"fmt"
	"slices"
	"time"

	"github.com/repolock/repolock/replock"
	"github.com/repolock/repolock/store/mem"
)

// Config says which history to run.
type Config struct {
	// Seed decides everything that the other fields leave open.
	Seed uint64
	// Protocol that the clients follow; nil is the engine.
	Protocol Protocol
	// Without leaves out: a kind by its name, a client ("c2"), what a client does
	// ("c2.1" is its second lock), a single fault by its id ("late:3fk20ab").
	Without []string
	// Only leaves out every kind but these, unless it is nil.
	Only []Kind
	// Apart has the first client take its lock well before the others do, and hold
	// it for long, so that none of them races with another.
	Apart bool
	// Scene is what the history is about, in place of what its seed says.
	Scene Kind
	// Trace writes the timeline.
	Trace bool
}

func (c *Config) has(k Kind) bool {
	return !slices.Contains(c.Without, k.String()) && (c.Only == nil || slices.Contains(c.Only, k))
}

// plan is all of a history that doesn't depend on how it goes.
type plan struct {
	dice    dice
	latency time.Duration
	store   mem.Options
	// rates of what befalls requests.
	rates [kinds]float64
	// mild: no more befalls a client than one request that fails in half a ttl.
	mild bool
	// gateways is how far the store's clocks are apart, at most.
	gateways time.Duration
	// storeJump is by how much the store's clock jumps, and when.
	storeJump, storeJumpAt time.Duration
	clients                []clientPlan
	leftovers              []leftover
	breaks                 []breaking
	// spread is how far the wall clocks are apart, at most.
	spread time.Duration
	// scene is what the history is about, and None mostly.
	scene   Kind
	freezes []planned
	slow    slowness
	refuses bool // the store refuses each If-Match
	local   bool // the store's clock is the first machine's
	// stale: a mod time that a client's clock stamps says when the request was sent, as
	// opposed to when it was applied.
	stale bool
}

type clientPlan struct {
	machine  int
	ttl      time.Duration
	skew     time.Duration
	noDelete bool
	outage   span
	brink    brink
	foreign  bool // follows the original protocol
	steps    []step
}

// step is one lock that a client takes.
type step struct {
	name string
	wait time.Duration // before
	mode replock.Mode
	hold time.Duration
	// resume, if it is lost; check or confirm, before it is released.
	resume, check, confirm bool
	// patience is for how long to try again while somebody else holds it, every now
	// and then.
	patience, pause time.Duration
	// queues: the engine waits, in place of the client.
	queues bool
	// thread of the process that takes the lock, with which of its Lockers, and the
	// lock's name.
	thread, locker int
	lock           string
	// meddles is how often others ask for the lock while it is held; quits: it is
	// released while it is being resumed.
	meddles int
	quits   bool
}

// leftover is a lock of somebody who is no more.
type leftover struct {
	mode    replock.Mode
	flag    bool // as opposed to lock.exclusive
	age     time.Duration
	ttl     time.Duration
	skew    time.Duration // of its holder's wall clock
	foreign bool          // written by another client of the wire format
	empty   bool          // released by somebody who may not delete
}

// breaking is a break-lock: of everything, of what is stale, of the tickets of those who
// wait, or that of another client of the wire format, which deletes lock.exclusive alone.
type breaking struct {
	at                      time.Duration
	stale, foreign, tickets bool
}

type span struct{ from, to time.Duration }

func (s span) covers(t time.Duration) bool { return s.from <= t && t < s.to }

// newPlan draws a plan, all of it, and then takes away what is left out: so what is
// left is the same as with nothing left out.
func newPlan(config *Config) *plan {
	d := dice(mix(config.Seed)).named("plan")
	p := &plan{
		dice:    d,
		latency: pick(d.of(1), time.Millisecond, 10*time.Millisecond, 80*time.Millisecond, 300*time.Millisecond),
		store:   mem.Options{PageSize: 1000},
	}
	for _, k := range ofRequests {
		k := uint64(k)
		if d.of(2, k).chance(.35) {
			p.rates[k] = pick(d.of(3, k), .005, .02, .06)
		}
	}
	if d.of(4).chance(.1) {
		p.rates = [kinds]float64{}
	}
	p.rates[Crash] /= 3
	p.rates[Freeze] = 0
	if d := d.named("freeze"); config.Protocol == nil && d.of(1).chance(.06) {
		p.rates[Freeze] = pick(d.of(2), .003, .01, .03)
	}
	if p.mild = d.of(5).chance(.05); p.mild {
		p.rates = [kinds]float64{Lost: .1, Unanswered: .1, Busy: .1, Broken: .1}
	}
	for _, k := range ofRequests {
		if !config.has(k) {
			p.rates[k] = 0
		}
	}
	p.drawStore(config, d.named("store"))
	p.drawClients(config, d.named("clients"))
	if d := d.named("leftovers"); config.has(Leftovers) && d.of(1).chance(.25) {
		for n := range uint64(1 + d.of(2).below(4)) {
			p.leftovers = append(p.leftovers, drawLeftover(config, d.of(3, n)))
		}
	}
	if d := d.named("break"); config.has(Break) && d.of(1).chance(.2) && !p.mild {
		for n := range uint64(1 + d.of(2).below(2)) {
			p.breaks = append(p.breaks, breaking{at: d.of(3, n).between(0, 4*p.ttl()), stale: d.of(4, n).chance(.3), foreign: d.of(5, n).chance(.4)})
		}
	}
	p.stage(config, d.named("scene"))
	if !config.has(Freeze) || p.storeJump != 0 || p.mild {
		p.rates[Freeze] = 0
	}
	return p
}

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

// deceptive reports whether the store's clock may be ahead. Two witnesses say when a lock is
// stale, and what isn't survived is that both are wrong. The second is the body, and a put
// that comes late, or again, makes it older than it is: so there are none of them. (A
// directory writes nothing once the request's time is over.)
func (p *plan) deceptive() bool { return p.storeJump > 0 || p.local }

func (p *plan) drawClients(config *Config, d dice) {
	ttl := pick(d.of(1), 10*time.Second, 10*time.Second, 30*time.Second, time.Minute)
	mixed := d.of(2).chance(.15)
	if ttl < time.Minute || mixed {
		p.latency = min(p.latency, 80*time.Millisecond)
	}
	// For the same reason wall clocks are wrong where the store's isn't.
	walls := config.has(Skew) && d.of(3).chance(.3) && p.storeJump == 0 && !p.mild
	if !walls {
		p.rates[Jump] = 0
	}
	comeback := !p.mild && config.has(Outage) && !config.Apart && d.of(6).chance(.4)
	if comeback && config.has(Slow) { // who passes and who comes back must meet in the middle of it
		p.rates[Slow] = .1
	}
	queues := config.Protocol == nil && d.of(8).chance(.3)
	machines := 0
	for n := range uint64(2 + d.of(4).below(4)) {
		d := d.of(5, n)
		c := clientPlan{machine: machines, ttl: ttl, noDelete: config.has(NoDelete) && d.of(1).chance(.07) && !p.mild}
		if mixed {
			c.ttl = pick(d.of(2), 10*time.Second, 30*time.Second, time.Minute, 3*time.Minute)
		}
		if machines > 0 && d.of(3).chance(.2) {
			c.machine-- // the machine before
		} else {
			machines++
		}
		if walls {
			c.skew = pick(d.of(4), 0, time.Hour, -time.Hour, 2*time.Minute, -2*time.Minute)
		}
		if config.has(Outage) && d.of(5).chance(.2) && !p.mild {
			c.outage.from = d.of(6).between(0, 3*ttl)
			c.outage.to = c.outage.from + d.of(7).between(0, 3*ttl)
		}
		for s := range uint64(1 + d.of(8).below(3)) {
			name := fmt.Sprintf("c%d.%d", n+1, s+1)
			drawn := drawStep(name, c.ttl, d.of(9, s))
			if comeback && s == 0 {
				c.comeback(n, &drawn, p.latency, d.of(10))
			}
			drawn.queues = queues && !(comeback && s == 0) && drawn.patience > 0 && d.of(11, s).chance(.7)
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

func drawStep(name string, ttl time.Duration, d dice) step {
	return step{
		name: name,
		wait: pick(d.of(1), d.of(2).within(time.Second), d.of(2).within(time.Second), d.of(2).between(0, ttl), d.of(2).between(0, 2*ttl)),
		mode: pick(d.of(3), replock.Shared, replock.Exclusive),
		hold: pick(d.of(4), 0, d.of(5).within(time.Second), d.of(5).between(0, ttl), d.of(5).between(0, 4*ttl)),

		resume: d.of(6).chance(.7),
		check:  d.of(7).chance(.2), confirm: d.of(10).chance(.2),
		quits: d.of(11).chance(.1),

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

// comeback has the first client come back from an outage just when the others may
// pass its lock, for which they wait.
func (c *clientPlan) comeback(client uint64, s *step, latency time.Duration, d dice) {
	if client == 0 {
		// Before the first refresh, or amid it: what it has to say arrives late, then.
		c.outage.from = pick(d.of(1), d.of(5).between(c.ttl/20, c.ttl*2/5), c.ttl/2+d.of(5).between(latency, 4*latency))
		// When others may just pass, 2 s after the ttl; or when they have.
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

// ttl is the longest that a lock may have.
func (p *plan) ttl() (ttl time.Duration) {
	for _, c := range p.clients {
		ttl = max(ttl, c.ttl)
		if c.foreign {
			ttl = max(ttl, foreignTTL)
		}
	}
	for _, l := range p.leftovers {
		ttl = max(ttl, l.ttl)
	}
	return ttl
}

// survivable reports whether so little goes wrong that nobody may lose a lock, or be
// refused one that is free.
func (p *plan) survivable() bool {
	return (p.mild || p.undisturbed()) && !p.has(func(c *clientPlan) bool { return c.foreign })
}

// has reports whether there is such a client.
func (p *plan) has(such func(*clientPlan) bool) bool {
	for n := range p.clients {
		if such(&p.clients[n]) {
			return true
		}
	}
	return false
}

// freezing reports whether a hypervisor pauses machines.
func (p *plan) freezing() bool { return p.rates[Freeze] > 0 || len(p.freezes) > 0 }

// timeless reports whether the store doesn't say by its own clock what the time is.
func (p *plan) timeless() bool { return p.store.NoTime || p.store.NoStoreClock }

// roundTrip is how long a request takes at most, where nothing goes wrong, with what lies
// around it.
func (p *plan) roundTrip() time.Duration {
	return max(4*p.latency, 2*p.slow.rtt, 2*p.slow.then) + grace
}

// undisturbed reports whether nothing at all goes wrong.
func (p *plan) undisturbed() bool {
	if p.has(func(c *clientPlan) bool { return c.outage.to > 0 || c.noDelete || c.skew != 0 }) {
		return false
	}
	return p.rates == [kinds]float64{} && len(p.breaks) == 0 && p.storeJump == 0 && len(p.freezes) == 0 && p.slow.then == 0
}
