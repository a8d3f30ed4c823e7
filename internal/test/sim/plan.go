package sim

import (
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
	// Without leaves out: a kind by its name, a client ("c2"), one of a client's steps ("c2.1"
	// is its second lock), a single fault by its id ("late:3fk20ab").
	Without []string
	// Only leaves out every kind but these, unless it is nil.
	Only []Kind
	// Apart has the first client take its lock well before the others do, and hold
	// it for long, so that none of them races with another.
	Apart bool
	// Scene is what the history is about, in place of what its seed says.
	Scene Kind
	// Pair is where two features of a lock meet, in place of what the seed says.
	Pair *Pair
	// Trace writes the timeline.
	Trace bool
}

func (c *Config) has(k Kind) bool {
	return !slices.Contains(c.Without, k.String()) && (c.Only == nil || slices.Contains(c.Only, k))
}

// plan is the part of a history that doesn't depend on its course.
type plan struct {
	dice    dice
	latency time.Duration
	store   mem.Options
	// rates are those of faults of requests.
	rates [kinds]float64
	// mild: a client has at most one failed request in half a ttl.
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
	// scene is the subject of the history, mostly None.
	scene   Kind
	freezes []planned
	reboots []rebooting
	slow    slowness
	refuses bool // the store refuses each If-Match
	local   bool // the store's clock is the first machine's
	sealed  bool // other clients encrypt their bodies
	// ill is the share of objects that a request to delete many doesn't delete as it should.
	ill  float64
	pair *Pair
	// stale: a mod time that a client's clock stamps says when the request was sent, as
	// opposed to when it was applied.
	stale bool
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
	intrudes  bool // it has looked before all others came: it sees only its own locks
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
	// patience is for how long to try again while another client holds it, every now
	// and then.
	patience, pause time.Duration
	// queues: the engine waits, in place of the client.
	queues bool
	// thread of the process that takes the lock, with which of its Lockers, and the
	// lock's name.
	thread, locker int
	lock           string
	// meddles is how often others ask for the lock while it is held; quits: it is released
	// while it is being resumed.
	meddles int
	quits   bool
	fence   bool // it takes a fencing number, if it is exclusive
}

// breaking is a break-lock: of everything, of what is stale, of the tickets of the
// waiters, or that of another client of the wire format, which deletes lock.exclusive alone.
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
	p.drawReboots(config, d.named("reboot"), .03, 0)
	p.stage(config, d.named("scene"))
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

// survivable reports whether so few faults are planned that no client can lose a lock, or be
// refused a free one.
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

// timeless reports whether the store doesn't return the time of its own clock.
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
	return p.rates == [kinds]float64{} && len(p.breaks) == 0 && len(p.reboots) == 0 && p.storeJump == 0 && len(p.freezes) == 0 && p.slow.then == 0
}
