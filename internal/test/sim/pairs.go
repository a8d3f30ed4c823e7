package sim

import (
	"fmt"
	"time"

	"github.com/repolock/repolock/replock"
	"github.com/repolock/repolock/store/memory"
)

// Feature is a circumstance of a lock. It changes the plan of a scene: the store, the holder, or the other
// clients. Features are applied in the order of their table.
type Feature struct {
	Name string
	add  func(*plan)
}

// Pair is a scene in which two features meet a lock of one mode.
type Pair struct {
	Mode replock.Mode
	A, B Feature
}

const pairTTL = 30 * time.Second

// plan returns the scene: one holder, changed by the features.
func (x *Pair) plan(d dice) *plan {
	p := &plan{dice: d, latency: 5 * time.Millisecond, store: memory.Options{PageSize: 1000}, pair: x}
	p.come(x.Mode, 0, step{hold: 28 * time.Second})
	x.A.add(p)
	if x.B.Name != x.A.Name {
		x.B.add(p)
	}
	return p
}

// come adds a client on another machine, which acquires one lock.
func (p *plan) come(mode replock.Mode, at time.Duration, s step) *clientPlan {
	n := len(p.clients)
	s.name, s.mode, s.wait, s.confirm = fmt.Sprintf("c%d.1", n+1), mode, at, true
	p.clients = append(p.clients, clientPlan{machine: n, ttl: pairTTL, steps: []step{s}})
	return &p.clients[n]
}

// holder is the step of the scene's first lock.
func (p *plan) holder() *step { return &p.clients[0].steps[0] }

// waiters begin one after another while the lock is held. Each waits until some seconds after its end.
func waiters(n int, modes ...replock.Mode) func(*plan) {
	return func(p *plan) {
		for i := range n {
			at := min(3*time.Second, p.holder().hold/3) + time.Duration(i)*4*time.Second/time.Duration(n)
			p.come(modes[i%len(modes)], at, step{queues: true, patience: p.holder().hold + 5*time.Second, hold: 400 * time.Millisecond})
		}
	}
}

// crowd is seventeen waiters, one more than a holder or an acquirer reads at once. They begin after a third of
// the time for which the lock is held, and wait until three seconds after its end.
func crowd(mode replock.Mode) func(*plan) {
	return func(p *plan) {
		for i := range 17 {
			at := p.holder().hold/3 + time.Duration(i)*100*time.Millisecond
			p.come(mode, at, step{queues: true, patience: p.holder().hold + 3*time.Second - at, hold: 200 * time.Millisecond})
		}
	}
}

// comers try once. They begin one after another, from a little before a time of the holder's to a little after
// it.
func comers(mode replock.Mode, hold time.Duration, at func(*plan) time.Duration) func(*plan) {
	return func(p *plan) {
		for i := range 5 {
			p.come(mode, max(0, at(p)+time.Duration(i-3)*7*time.Millisecond), step{hold: hold})
		}
	}
}

func itsStart(*plan) time.Duration { return 10 * time.Millisecond }
func itsEnd(p *plan) time.Duration { return p.holder().wait + p.holder().hold + 20*time.Millisecond }

// left puts locks that other holders have left.
func left(n int, l leftover) func(*plan) {
	return func(p *plan) {
		for i := range n {
			l := l
			if l.mode = replock.Exclusive; i%2 == 0 {
				l.mode = replock.Shared
			}
			p.leftovers = append(p.leftovers, l)
		}
	}
}

// other is a client of the original protocol, which holds its lock for a while.
func other(mode replock.Mode, change func(*clientPlan)) func(*plan) {
	return func(p *plan) {
		c := p.come(mode, p.holder().hold/4, step{hold: 24 * time.Second})
		c.foreign = true
		c.steps[0].confirm = false
		change(c)
	}
}

func intrudes(c *clientPlan) { c.intrudes = true }
func behind(c *clientPlan)   { c.intrudes, c.behind = true, true }

func breaks(b breaking) func(*plan) {
	return func(p *plan) {
		b := b
		b.at = p.holder().hold * 4 / 7 // the next refresh comes after the end
		p.breaks = append(p.breaks, b)
	}
}

func conditions(absent, match memory.Condition, change func(*plan)) func(*plan) {
	return func(p *plan) {
		p.store.IfAbsent, p.store.IfMatch = absent, match
		change(p)
	}
}

func asTheyAre(*plan) {}

func stoodStill(long time.Duration) func(*plan) {
	return func(p *plan) {
		p.freezes = append(p.freezes, planned{at: p.holder().hold / 3, long: long})
	}
}

func cloned(later time.Duration) func(*plan) {
	return func(p *plan) {
		p.clone = &cloning{at: p.holder().wait + p.holder().hold/2, later: later}
	}
}

// Features are all of them.
var Features = []Feature{
	{"a slow store", func(p *plan) { p.slow.rtt = 300 * time.Millisecond }},
	{"conditions that a server claims", conditions(memory.Claimed, memory.Claimed, asTheyAre)},
	{"conditions that a server ignores", conditions(memory.Ignored, memory.Ignored, asTheyAre)},
	{"no conditions", conditions(memory.Lacked, memory.Lacked, asTheyAre)},
	{"versions", conditions(memory.Lacked, memory.Lacked, func(p *plan) { p.store.Versions = true })},
	{"If-Match that is always refused", conditions(memory.Kept, memory.Claimed, func(p *plan) { p.refuses = true })},
	{"If-Match that creates", conditions(memory.Claimed, memory.Claimed, func(p *plan) { p.store.IfMatchCreates = true })},
	{"delete markers that count as objects", func(p *plan) { p.store.Markers = true }},
	{"pages of two", func(p *plan) { p.store.PageSize = 2 }},
	{"times to the second", func(p *plan) { p.store.Precision = time.Second }},
	{"no time in listings", func(p *plan) { p.store.NoTime = true }},
	{"no time in answers to puts", func(p *plan) { p.store.UntimedPuts = true }},
	{"a clock of the store that is set forward", func(p *plan) { p.storeJump, p.storeJumpAt = time.Hour, p.holder().hold/3 }},
	{"no clock of the store", func(p *plan) { p.store.NoStoreClock = true }},
	{"hints of deletions", func(p *plan) { p.hints.on = true }},
	{"hints that fail, come late, or are false", func(p *plan) {
		p.hints = hinting{on: true, fails: .3, ends: .5, lost: .5, late: .5, stray: 2 * time.Second}
	}},

	{"its holder ends soon", func(p *plan) { p.holder().hold = 700 * time.Millisecond }},
	{"its holder had to wait", func(p *plan) {
		p.holder().wait, p.holder().queues, p.holder().patience = time.Second, true, time.Minute
		p.come(replock.Exclusive, 0, step{hold: 3 * time.Second})
	}},
	{"its ttl is short", func(p *plan) { p.clients[0].ttl = 10 * time.Second }},
	{"its clock is an hour fast", func(p *plan) { p.clients[0].skew, p.spread = time.Hour, time.Hour }},
	{"its clock is an hour slow", func(p *plan) { p.clients[0].skew, p.spread = -time.Hour, time.Hour }},
	{"its holder may not delete", func(p *plan) { p.clients[0].noDelete = true }},
	{"it is lost and resumed", func(p *plan) {
		p.holder().hold = max(p.holder().hold, 30*time.Second) // an exclusive lock is refreshed a second after it was acquired
		p.clients[0].outage, p.holder().resume = span{p.clients[0].ttl * 4 / 10, p.clients[0].ttl}, true
	}},
	{"its machine stood still", stoodStill(5 * time.Second)},
	{"its machine stood still for longer than its lease", stoodStill(pairTTL * 3 / 2)},
	{"its machine is cloned", cloned(0)},
	{"its machine is cloned, and restored later", cloned(pairTTL * 3 / 2)},
	{"its holder has several", func(p *plan) {
		for i, name := range []string{"other", "third"} {
			s := *p.holder()
			s.name, s.thread, s.locker, s.lock = fmt.Sprintf("c1.%d", i+2), i+1, i+1, name
			p.clients[0].steps = append(p.clients[0].steps, s)
		}
	}},

	{"an exclusive waiter", waiters(1, replock.Exclusive)},
	{"a shared waiter", waiters(1, replock.Shared)},
	{"waiters of both modes", waiters(4, replock.Exclusive, replock.Shared)},
	{"seventeen shared waiters", crowd(replock.Shared)},
	{"seventeen exclusive waiters", crowd(replock.Exclusive)},
	{"shared acquirers at its start", comers(replock.Shared, 20*time.Second, itsStart)},
	{"exclusive acquirers at its start", comers(replock.Exclusive, time.Second, itsStart)},
	{"shared acquirers at its end", comers(replock.Shared, time.Second, itsEnd)},
	{"exclusive acquirers at its end", comers(replock.Exclusive, time.Second, itsEnd)},
	{"break-lock", breaks(breaking{})},
	{"break-lock --stale", breaks(breaking{stale: true})},
	{"break-lock of the tickets", breaks(breaking{tickets: true})},
	{"seventeen dead locks", left(17, leftover{flag: true, age: 5 * pairTTL, ttl: pairTTL})},
	{"seventeen dead locks, perhaps", left(17, leftover{flag: true, age: 5 * pairTTL, ttl: 10 * time.Second, skew: time.Hour})},
	{"dead locks of other clients", left(2, leftover{foreign: true, age: 2 * foreignTTL, ttl: foreignTTL})},
	{"a hundred shared locks", func(p *plan) {
		for range 101 {
			p.leftovers = append(p.leftovers, leftover{mode: replock.Shared, flag: true, ttl: pairTTL})
		}
		p.holder().queues, p.holder().patience = true, time.Minute
	}},
	{"files of other programs", func(p *plan) { p.aliens = true }},
	{"emptied flags", left(20, leftover{flag: true, empty: true, age: time.Hour, ttl: pairTTL})},
	{"a shared lock of another client", other(replock.Shared, intrudes)},
	{"a shared lock of another client, with a late name", other(replock.Shared, behind)},
	{"an exclusive lock of another client", other(replock.Exclusive, intrudes)},
	{"another client that looks", other(replock.Shared, func(c *clientPlan) { c.steps[0].patience, c.steps[0].pause = 2*pairTTL, time.Second })},

	{"other clients encrypt", func(p *plan) { p.sealed = true }},
	{"a name", func(p *plan) {
		for n := range p.clients {
			if !p.clients[n].foreign {
				p.clients[n].steps[0].lock = "named"
			}
		}
		for n := range p.leftovers {
			if !p.leftovers[n].foreign {
				p.leftovers[n].lock = "named"
			}
		}
		for n := range p.breaks {
			p.breaks[n].lock = "named"
		}
	}},
	{"fences", func(p *plan) {
		for n := range p.clients {
			p.clients[n].steps[0].fence = true
		}
	}},
}

// Pairs are all scenes: each two features, each alone, and each in both modes.
func Pairs() (all []*Pair) {
	for i, a := range Features {
		for _, b := range Features[i:] {
			for _, mode := range []replock.Mode{replock.Shared, replock.Exclusive} {
				all = append(all, &Pair{mode, a, b})
			}
		}
	}
	return all
}

func (x *Pair) String() string {
	if x.A.Name == x.B.Name {
		return fmt.Sprintf("%v lock, %s", x.Mode, x.A.Name)
	}
	return fmt.Sprintf("%v lock, %s, %s", x.Mode, x.A.Name, x.B.Name)
}
