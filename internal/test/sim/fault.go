package sim

import (
	"slices"
	"time"
)

// Kind is a fault in a history, or a property that makes its world worse than a good one. Its
// name is the one in Config.Without.
type Kind int

// Faults of a request, or of its sender at that moment.
const (
	None       Kind = iota
	Lost            // never arrives
	Unanswered      // is applied, and the answer lost
	Late            // is applied after its sender gave up
	Twice           // is applied, and once more later
	Busy            // is answered 503, and not applied
	Broken          // is answered 500, and applied all the same
	Conflict        // is a conditional put, and answered 409
	Slow            // is slow
	Outage          // falls into a time in which its sender is cut off
	Pause           // its sender is stopped, and goes on later
	Suspend         // its sender's whole machine is stopped
	Crash           // its sender dies
	Jump            // its sender's wall clock jumps

	// Properties of the world.
	Skew       // wall clocks are hours wrong
	StoreJump  // the store's clock jumps
	Gateways   // the store's clocks disagree a little
	Conditions // conditional puts are ignored, refused, or not to be relied on
	NoDelete   // a client has no right to delete
	Pages      // a page of a listing has few objects, and others write between two pages
	Leftovers  // others have left locks behind
	Break      // a break-lock runs
	Poor       // the store has no time, or rounds it, or has no clock of its own
	Namespaces // processes of one machine have clocks since boot of their own
	Reboot     // a machine reboots

	Freeze // as None to Jump: the hypervisor pauses its sender's machine

	// The subject of a history: see scenes.
	Frozen  // the hypervisor pauses a holder's machine for as long as its lock lives
	Creates // If-Match makes an object where there is none; and a lock is broken
	Refuses // If-Match is refused, whatever the ETag
	Crawl   // round trips of seconds
	Duel    // two clients that come at almost one time
	Foreign // live clients of the original protocol
	Several // locks of one process
	Brink   // outages that end shortly before the deadline
	Local   // one machine's wall clock stamps what the store keeps
	Evict   // a client deletes the tickets of the waiters
	Unclock // no clock of the store shows whether a lock was passed
	Sealed  // other clients encrypt their bodies
	Fenced  // exclusive locks take fencing numbers
	Crowd   // many crashed holders have left flags, which are deleted by few requests
	kinds
)

var kindNames = [kinds]string{
	"none", "lost", "unanswered", "late", "twice", "busy", "broken", "conflict", "slow", "outage", "pause", "suspend",
	"crash", "jump", "skew", "storejump", "gateways", "conditions", "nodelete", "pages", "leftovers", "break", "poor",
	"namespaces", "reboot",
	"freeze", "frozen", "creates", "refuses", "crawl", "duel", "foreign", "several", "brink", "local", "evict", "unclock",
	"sealed", "fenced", "crowd",
}

func (k Kind) String() string { return kindNames[k] }

// Kinds are all kinds, None excepted.
func Kinds() []Kind {
	all := make([]Kind, 0, kinds-1)
	for k := None + 1; k < kinds; k++ {
		all = append(all, k)
	}
	return all
}

// ofRequests are those that befall single requests.
var ofRequests = []Kind{Lost, Unanswered, Late, Twice, Busy, Broken, Conflict, Slow, Pause, Suspend, Crash, Jump, Freeze}

// unheard are those after which the sender has had no answer. It gets an error, or is left
// waiting.
var unheard = []Kind{Lost, Outage, Late, Unanswered}

// fault is the fault of one request. The zero value is an undisturbed request.
type fault struct {
	kind Kind
	id   string // for Config.Without
	dice dice
	// there and back are how long the request and its answer take.
	there, back time.Duration
	// after: the sender is stopped, or dies, when it gets the answer, not before it sends.
	after bool
	// long is how long the sender is stopped, or how much later the request arrives.
	long time.Duration
	// set is how long after a hypervisor's pause the wall clock is set right, or 0.
	set time.Duration
	// hang: the sender gets no error, and waits.
	hang bool
}

// decide draws a request's fault, if it has one.
func (w *world) decide(c *client, r request, d dice) fault {
	f := fault{dice: d}
	f.there = w.plan.latency + d.of(1).within(w.plan.latency) + nanoseconds(d.of(2))
	f.back = w.plan.latency/2 + d.of(3).within(w.plan.latency) + nanoseconds(d.of(4))
	if w.calm.Load() {
		return f
	}
	if rtt := w.plan.slow.at(time.Since(w.start)); rtt > 0 {
		f.there = rtt/2 + d.of(1).between(0, rtt/50) + nanoseconds(d.of(2))
		f.back = rtt/2 + d.of(3).between(0, rtt/50) + nanoseconds(d.of(4))
	}
	kept := time.Duration(-1) // at some point of the way, until the outage is over
	at := d.of(5).unit()
	for _, k := range ofRequests {
		if at -= w.plan.rates[k]; at < 0 {
			f.kind = k
			break
		}
	}
	if w.plan.mild && f.kind != None && !c.spared() {
		f.kind = None
	}
	if f.kind == Conflict && !r.conditional() || f.kind == Twice && !r.writes() {
		f.kind = None
	}
	if f.kind != None {
		f.id = f.kind.String() + ":" + short(d)
	}
	if f.kind == None && c.plan.outage.covers(time.Since(w.start)) {
		f.kind, f.id = Outage, Outage.String()
		late := .3
		if w.plan.scene == Unclock {
			late = .8
		}
		if r.writes() && d.of(13).chance(late) && w.config.has(Late) && !w.plan.deceptive() {
			f.kind, f.id = Late, Late.String()+":"+short(d)
			kept = max(0, c.plan.outage.to-time.Since(w.start)+d.of(14).between(-c.plan.ttl/4, c.plan.ttl/20))
		}
	}
	if f.kind == None && c.onTheBrink() {
		f.kind, f.id = Outage, Brink.String()
	}
	if f.kind == None {
		return f
	}
	if slices.Contains(w.config.Without, f.id) {
		return fault{dice: d, there: f.there, back: f.back}
	}
	w.extend(&f, c, kept)
	return f
}

// extend draws how long a fault lasts, and when it strikes. A request that is held up arrives
// after that time.
func (w *world) extend(f *fault, c *client, kept time.Duration) {
	d, ttl := f.dice, c.plan.ttl
	f.after, f.hang = d.of(6).chance(.5), d.of(7).chance(.5) && slices.Contains(unheard, f.kind)
	if c.plan.brink.to > 0 {
		f.hang = d.of(7).chance(c.plan.brink.hang)
	}
	switch f.kind {
	case Late, Twice:
		if kept >= 0 {
			f.long = kept
			break
		}
		f.long = pick(d.of(8), d.of(9).within(2*time.Second), d.of(9).within(ttl), d.of(9).between(0, 3*ttl))
	case Pause, Suspend:
		f.long = pick(d.of(8), d.of(9).within(ttl/10), d.of(9).between(ttl/4, ttl), d.of(9).between(ttl*3/4, ttl*5/2))
	case Freeze:
		f.long = pick(d.of(8), d.of(9).within(ttl/10), d.of(9).between(ttl/4, ttl), d.of(9).between(ttl*3/4, ttl*5/2))
		if d.of(15).chance(.5) {
			f.set = d.of(16).within(30 * time.Second)
		}
	case Slow:
		slow := pick(d.of(8), d.of(9).within(ttl/30), d.of(9).between(0, ttl/6), d.of(9).between(0, ttl))
		if w.plan.deceptive() && !f.after {
			slow = min(slow, ttl/30) // it arrives while its sender waits
		}
		if f.after {
			f.back += slow
		} else {
			f.there += slow
		}
	}
}

// nanoseconds keep two things from happening at the same time.
func nanoseconds(d dice) time.Duration { return time.Duration(d.below(1_000_000)) }

func short(d dice) string {
	const digits = "0123456789abcdefghijklmnopqrstuv"
	b := make([]byte, 7)
	for i := range b {
		b[i] = digits[d>>(5*i)&31]
	}
	return string(b)
}
