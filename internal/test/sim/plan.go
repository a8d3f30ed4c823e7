package sim

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/repolock/repolock/replock"
	"github.com/repolock/repolock/store/memory"
)

// Config selects a history.
type Config struct {
	// Seed decides everything that the other fields leave open.
	Seed uint64
	// Protocol that the clients follow; nil is the engine.
	Protocol Protocol
	// Without leaves out: a kind by its name, a client ("c2"), one of a client's steps ("c2.1"
	// is its second lock), a single fault by its id ("late:3fk20ab").
	Without []string
	// Only leaves out every kind but these, unless it is nil.
	Only []Kind
	// Apart: the first client acquires its lock well before the others, and holds it for long, so that no two
	// race.
	Apart bool
	// Scene replaces the subject that the seed selects.
	Scene Kind
	// Pair replaces the seed's history by two features of a lock.
	Pair *Pair
	// Idle is the limit of Result.Idle, or 0.
	Idle time.Duration
	// Trace writes the timeline.
	Trace bool
}

func (c *Config) has(k Kind) bool {
	return !slices.Contains(c.Without, k.String()) && (c.Only == nil || slices.Contains(c.Only, k))
}

// keeps reports whether a client's step isn't left out.
func (c *Config) keeps(step string) bool {
	client, _, _ := strings.Cut(step, ".")
	return !slices.Contains(c.Without, step) && !slices.Contains(c.Without, client)
}

// plan is the part of a history that doesn't depend on its course.
type plan struct {
	dice    dice
	latency time.Duration
	store   memory.Options
	// rates are the rates of the faults of requests.
	rates [kinds]float64
	// mild: a client has at most one failed request in half a ttl.
	mild bool
	// gateways is how far the store's clocks are apart, at most.
	gateways time.Duration
	// storeJump is by how much the store's clock jumps, and when.
	storeJump, storeJumpAt time.Duration
	// storeBackAt is when the store's clock is right again; 0: it stays wrong.
	storeBackAt time.Duration
	clients     []clientPlan
	leftovers   []leftover
	aliens      bool // other programs keep files among the flags: see scatter
	breaks      []breaking
	// spread is how far the wall clocks are apart, at most.
	spread time.Duration
	// scene is the subject of the history, mostly None.
	scene   Kind
	freezes []planned
	reboots []rebooting
	slow    slowness
	refuses bool // the store refuses each If-Match
	local   bool // the store's clock is the first machine's
	sealed  bool // other clients encrypt their bodies
	// ill is the share of objects that a request to delete many doesn't delete as it should.
	ill   float64
	pair  *Pair
	clone *cloning
	// stale: a mod time by a client's clock is the time when the request was sent, not when it was applied.
	stale bool
	hints hinting
}

type clientPlan struct {
	machine   int
	namespace int           // of its processes; 0 is the machine's own
	shift     time.Duration // of that one's clock since boot
	ttl       time.Duration
	skew      time.Duration
	noDelete  bool
	outage    span
	brink     brink
	foreign   bool // follows the original protocol
	intrudes  bool // it looked before all others began, and sees only its own locks
	behind    bool // the names of its shared locks come after ours
	steps     []step
}

// step is one lock that a client takes.
type step struct {
	name string
	wait time.Duration // before
	mode replock.Mode
	hold time.Duration
	// resume, if it is lost; check or confirm, before it is released.
	resume, check, confirm bool
	// patience is how long to try again while another client holds the lock, with pauses.
	patience, pause time.Duration
	// within is the time limit of the context in which it asks for the lock, or 0.
	within time.Duration
	// queues: the engine waits, in place of the client.
	queues bool
	// thread is the goroutine that acquires the lock, locker its Locker, and lock the lock's name.
	thread, locker int
	lock           string
	// meddles is how often Refresh or Check is called while the lock is held; quits: it is released during a
	// resume.
	meddles int
	quits   bool
	fence   bool // it takes a fencing token, if it is exclusive
}

// breaking is a break-lock: of all locks, of the stale ones, of the waiters' tickets, or one of another client
// of the wire format, which deletes lock.exclusive alone.
type breaking struct {
	at                      time.Duration
	stale, foreign, tickets bool
	lock                    string // its name
}

type span struct{ from, to time.Duration }

func (s span) covers(t time.Duration) bool { return s.from <= t && t < s.to }

// newPlan draws a whole plan, and then removes the parts that are left out. So the rest is the
// same as with nothing left out.
func newPlan(config *Config) *plan {
	d := dice(mix(config.Seed)).named("plan")
	if config.Pair != nil {
		return config.Pair.plan(d)
	}
	p := &plan{
		dice:    d,
		latency: pick(d.of(1), time.Millisecond, 10*time.Millisecond, 80*time.Millisecond, 300*time.Millisecond),
		store:   memory.Options{PageSize: 1000},
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
	p.drawReboots(config, d.named("reboot"), .03, 0)
	p.stage(config, d.named("scene"))
	p.drawHints(config, d.named("hints"))
	if !config.has(Freeze) || p.storeJump != 0 || p.mild {
		p.rates[Freeze] = 0
	}
	return p
}

// ttl is the longest ttl of a lock.
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

// survivable reports whether the plan has so few faults that no client can lose a lock, or fail to acquire a
// free one.
func (p *plan) survivable() bool {
	return (p.mild || p.undisturbed()) && !p.has(func(c *clientPlan) bool { return c.foreign })
}

// has reports whether a client fulfils the condition.
func (p *plan) has(such func(*clientPlan) bool) bool {
	for n := range p.clients {
		if such(&p.clients[n]) {
			return true
		}
	}
	return false
}

// freezing reports whether a hypervisor pauses machines.
func (p *plan) freezing() bool { return p.rates[Freeze] > 0 || len(p.freezes) > 0 || p.clone != nil }

// unstopped reports whether no process and no machine is ever stopped.
func (p *plan) unstopped() bool {
	return p.rates[Pause] == 0 && p.rates[Suspend] == 0 && !p.freezing() && len(p.reboots) == 0
}

// timeless reports whether the store doesn't return the time of its clock.
func (p *plan) timeless() bool { return p.store.NoTime || p.store.NoStoreClock }

// roundTrip is the longest time that a request takes if it has no fault, with some slack.
func (p *plan) roundTrip() time.Duration {
	return max(4*p.latency, 2*p.slow.rtt, 2*p.slow.then) + grace
}

// undisturbed reports whether nothing at all goes wrong.
func (p *plan) undisturbed() bool {
	if p.has(func(c *clientPlan) bool { return c.outage.to > 0 || c.noDelete || c.skew != 0 }) {
		return false
	}
	return p.clone == nil && p.rates == [kinds]float64{} && len(p.breaks) == 0 && len(p.reboots) == 0 && p.storeJump == 0 && len(p.freezes) == 0 && p.slow.then == 0
}

func (p *plan) drawStore(config *Config, d dice) {
	if config.has(Conditions) && d.of(1).chance(.6) {
		p.store.IfAbsent = pick(d.of(2), memory.Kept, memory.Claimed, memory.Ignored, memory.Lacked)
		p.store.IfMatch = pick(d.of(3), memory.Kept, memory.Claimed, memory.Ignored, memory.Lacked)
		p.store.Versions = p.store.IfAbsent == memory.Lacked && p.store.IfMatch == memory.Lacked && d.of(4).chance(.5)
		p.store.Markers = d.of(15).chance(.15)
	}
	if config.has(Poor) {
		p.store.Precision = pick(d.of(5), 0, time.Second)
		p.store.NoTime = d.of(6).chance(.3)
		p.store.NoStoreClock = d.of(7).chance(.1)
		p.store.UntimedPuts = d.of(16).chance(.2)
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

// deceptive reports whether the store's clock can be ahead. The engine judges a lock by two clocks, and
// doesn't survive if both are wrong. The second one is in the body, and a late or repeated put makes the body
// older than it is: so such a plan has no late or repeated puts. (A directory writes nothing once the
// request's time is over.)
func (p *plan) deceptive() bool { return p.storeJump > 0 || p.local }

// common are the properties that all clients of a history share.
type common struct {
	ttl    time.Duration
	mixed  bool // each client has its own ttl
	walls  bool // wall clocks are wrong
	queues bool // the engine waits, in place of the client
	// comeback: the outage of the first client ends when others can pass its lock.
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
	if all.comeback && config.has(Slow) { // the requests of the passer and of the returning holder must overlap
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

// apart makes the first client hold its lock from the beginning, and the others try later.
func (s *step) apart(client, nth uint64) {
	switch {
	case client == 0 && nth == 0:
		s.wait, s.hold = 0, 10*time.Minute
	case client > 0:
		s.wait = 20*time.Second + time.Duration(client)*30*time.Second + s.wait%(10*time.Second)
		s.mode = replock.Exclusive
	}
}

// comeback ends the first client's outage just when the waiting others can pass its lock.
func (c *clientPlan) comeback(client uint64, s *step, latency time.Duration, d dice) {
	if client == 0 {
		// Before the first refresh, or in the middle of it: then its requests arrive late.
		c.outage.from = pick(d.of(1), d.of(5).between(c.ttl/20, c.ttl*2/5), c.ttl/2+d.of(5).between(latency, 4*latency))
		// When others can just pass, 2 s after the ttl, or after they have passed.
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

// dice is a hash that serves as a source of randomness. A draw depends on the seed and on its purpose, not on
// earlier draws.
type dice uint64

// of returns the dice for a thing.
func (d dice) of(parts ...uint64) dice {
	for _, p := range parts {
		d = dice(mix(uint64(d) ^ mix(p+0x9e3779b97f4a7c15)))
	}
	return d
}

// named returns the dice for a thing that has a name.
func (d dice) named(name string) dice {
	h := uint64(14695981039346656037) // FNV-1a
	for i := range len(name) {
		h = (h ^ uint64(name[i])) * 1099511628211
	}
	return d.of(h)
}

// mix is the finalizer of splitmix64.
func mix(x uint64) uint64 {
	x ^= x >> 30
	x *= 0xbf58476d1ce4e5b9
	x ^= x >> 27
	x *= 0x94d049bb133111eb
	return x ^ x>>31
}

// unit is from [0, 1).
func (d dice) unit() float64 { return float64(mix(uint64(d))>>11) / (1 << 53) }

// chance is true with probability p.
func (d dice) chance(p float64) bool { return d.unit() < p }

// below is from [0, n).
func (d dice) below(n int) int { return int(d.unit() * float64(n)) }

// within is from [0, most). Even small values are likely, because the draw is even in the
// logarithm, over three orders of magnitude.
func (d dice) within(most time.Duration) time.Duration {
	return time.Duration(float64(most) * math.Pow(1000, d.unit()-1))
}

// between is from [low, high).
func (d dice) between(low, high time.Duration) time.Duration {
	return low + time.Duration(d.unit()*float64(high-low))
}

// pick is one of the choices.
func pick[T any](d dice, choices ...T) T { return choices[d.below(len(choices))] }

// fill makes bytes.
func (d dice) fill(b []byte) {
	for i := 0; i < len(b); i += 8 {
		var word [8]byte
		d = d.of(uint64(i))
		binary.LittleEndian.PutUint64(word[:], uint64(d))
		copy(b[i:], word[:])
	}
}
