// Package sim runs the lock's real engine through simulated histories: two to five clients on a simulated
// store, in simulated time, where requests are lost, late, doubled or refused, clocks are wrong, and processes
// stop or die at the worst moment. One seed decides a whole history, and the same seed always produces the same
// history.
//
// It runs in a testing/synctest bubble, whose time passes only when all goroutines wait. The bubble doesn't
// order events at the same time, so no two events may have the same time: the delays of a request come from a
// hash of the seed and of the request, and differ from all others by nanoseconds. A draw depends on its purpose
// and its time, not on earlier draws.
//
// See monitor for the rules that are checked at every request, and plan for the contents of a history. The
// engine doesn't know that it is simulated: it has a store, a clock and a source of randomness, as always.
package sim

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/repolock/repolock/replock"
	"github.com/repolock/repolock/store/memory"
)

// world is a running history.
type world struct {
	config   Config
	plan     *plan
	protocol Protocol
	start    time.Time
	ctx      context.Context // ends all clients
	mem      *memory.Store
	machines map[int]*machine
	janitor  *client
	calm     atomic.Bool  // faults have ended
	flying   atomic.Int64 // requests under way
	couriers couriers
	locks    []string // their names

	mu      sync.Mutex
	sender  *client // of the request that is being applied
	sent    dice
	stamp   time.Time     // its wall clock when it was sent
	past    time.Duration // of a written object, before now
	changed time.Time     // when something was written
	result  *Result
	monitor
	timeline
}

// Result of a history.
type Result struct {
	Violation *Violation
	Timeline  string // if Config.Trace is set
	Fired     []string
	Virtual   time.Duration
	Requests  int
	// Idle is the longest time for which the way of the first waiter was free and no waiter took it, less three round trips.
	Idle   time.Duration
	Faults [kinds]int

	Acquired, Held, Failed, Lost, Resumed, Queued int
}

// Violation is the breach of a rule.
type Violation struct {
	Kind string
	At   time.Duration
	Text string
}

// Run runs one history.
func Run(t *testing.T, config Config) Result {
	var r Result
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(config, &r)
		w.run()
		r.Virtual = time.Since(w.start)
		w.mu.Lock() // its machines go on
		r.Timeline = w.timeline.String()
		w.mu.Unlock()
		w.bury()
		time.Sleep(time.Hour) // until the stopped clients have ended
		w.couriers.dismiss()
	})
	return r
}

func newWorld(config Config, r *Result) *world {
	w := &world{
		config: config, plan: newPlan(&config), protocol: config.Protocol, result: r,
		start: time.Now(), changed: time.Now(),
		monitor: monitor{
			broken: map[string]time.Time{}, undone: map[string]bool{}, owner: map[string]*client{}, queue: map[string]ticket{},
			seen: map[sighted]sighting{}, present: map[string]presence{}, turns: map[turn]*client{}, looks: map[string][]time.Time{}, grants: map[string]time.Time{}, over: map[string]time.Time{}, pointers: map[string]*pointer{}, waiting: map[string]waiting{}, paces: map[string]*pace{}, lives: map[string][]life{}, stored: map[string]bool{}, vacant: map[string]vacancy{}, counts: map[string]uint64{}, fences: map[string]uint64{},
		},
		timeline: timeline{on: config.Trace, names: map[string]string{}, count: map[string]int{}},
		machines: map[int]*machine{},
	}
	if w.protocol == nil {
		w.protocol = engine{}
	}
	w.plan.store.Now, w.locks = w.storeTime, w.plan.locks()
	for k, is := range map[Kind]bool{
		StoreJump: w.plan.storeJump != 0, Gateways: w.plan.gateways != 0,
		Poor:         w.plan.store.Precision > 0 || w.plan.timeless(),
		Hints:        w.plan.hints.on,
		Namespaces:   w.plan.has(func(c *clientPlan) bool { return c.namespace > 0 }),
		w.plan.scene: w.plan.scene != None,
	} {
		if is {
			r.Faults[k]++
		}
	}
	w.mem = memory.New(w.plan.store)
	for n := range w.plan.clients {
		p := &w.plan.clients[n]
		if w.machines[p.machine] == nil {
			d := w.plan.dice.named("boot").of(uint64(p.machine))
			w.machines[p.machine] = &machine{host: fmt.Sprint("m", p.machine), skew: p.skew, booted: w.start.Add(-d.between(time.Minute, time.Hour))}
		}
	}
	return w
}

// storeTime returns the store's stamp for the time, while mu is held.
func (w *world) storeTime() time.Time {
	now := time.Now()
	switch {
	case w.plan.local:
		return w.machines[0].wall().Add(-w.past)
	case w.plan.stale && w.sender != nil:
		return w.stamp
	case w.plan.store.NoStoreClock && w.sender != nil:
		return w.sender.machine.wall()
	}
	if at := time.Since(w.start); w.plan.storeJump != 0 && at >= w.plan.storeJumpAt && (w.plan.storeBackAt == 0 || at < w.plan.storeBackAt) {
		now = now.Add(w.plan.storeJump)
	}
	if w.plan.gateways > 0 {
		now = now.Add(w.sent.of(12).between(-w.plan.gateways, w.plan.gateways) / 2)
	}
	return now.Add(-w.past)
}

// run makes the clients follow their plans, and then checks the objects that are left.
func (w *world) run() {
	var end context.CancelFunc
	w.ctx, end = context.WithCancel(context.Background())
	defer end()
	ttl := w.plan.ttl()
	w.describe()
	w.leave()
	done := make(chan struct{})
	go func() {
		defer close(done)
		w.play()
	}()
	select {
	case <-done:
	case <-time.After(30*ttl + time.Minute + w.plan.lasts()):
		end()
		select {
		case <-done:
		case <-time.After(30 * ttl): // a client that is stopped for long has gone on by then
			w.mu.Lock()
			w.violate("hang", "a call doesn't return")
			w.mu.Unlock()
		}
	}
	end()
	w.land()
	w.calm.Store(true)
	w.progress()
	w.emptied()
	for _, lock := range w.locks {
		if w.config.Protocol == nil && !w.violated() {
			w.enterAlone(lock)
		}
	}
	w.land()
}

// bury ends the goroutines of processes that were killed.
func (w *world) bury() {
	for _, h := range w.all {
		if h.p.gone() {
			_ = h.lock.Release(context.Background())
		}
	}
}

// land waits until no request is under way.
func (w *world) land() {
	for synctest.Wait(); w.flying.Load() > 0; synctest.Wait() {
		time.Sleep(time.Second)
	}
}

// play runs all clients.
func (w *world) play() {
	var parts []func()
	for n := range w.plan.clients {
		p := &w.plan.clients[n]
		if p.skew != 0 {
			w.fired(Skew)
		}
		c := w.newClient(n, fmt.Sprintf("c%d", n+1), p, w.machines[p.machine])
		parts = append(parts, c.run)
		if n == 0 && w.plan.clone != nil {
			copied := w.clone(c)
			parts = append(parts, copied.run, func() { copied.twins.parts(w) })
		}
	}
	if len(w.plan.freezes) > 0 {
		parts = append(parts, w.hypervisor)
	}
	if len(w.plan.reboots) > 0 {
		parts = append(parts, w.restart)
	}
	if len(w.plan.breaks) > 0 {
		w.janitor = w.newClient(len(w.plan.clients), "janitor", &clientPlan{ttl: w.plan.ttl()}, w.another("janitor's"))
		parts = append(parts, w.tidy)
	}
	var wg sync.WaitGroup
	for _, part := range parts {
		wg.Go(part)
	}
	wg.Wait()
}

// another returns a machine without clients.
func (w *world) another(host string) *machine {
	if w.plan.local {
		return w.machines[0]
	}
	return &machine{host: host, booted: w.start.Add(-time.Minute)}
}

func (w *world) violated() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.result.Violation != nil
}

// violate notes a violation, while mu is held. The first one counts.
func (w *world) violate(kind, text string) {
	if w.result.Violation != nil {
		return
	}
	w.result.Violation = &Violation{kind, time.Since(w.start), text}
	w.say(nil, "!!! %s: %s", kind, text)
	w.timeline.on = false
}

// fired counts a fault.
func (w *world) fired(k Kind) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.result.Faults[k]++
}

// tidy is the janitor.
func (w *world) tidy() {
	p := w.janitor.living()
	for _, b := range w.plan.breaks {
		time.Sleep(time.Until(w.start.Add(b.at)))
		if w.ctx.Err() != nil || p.gone() {
			return
		}
		w.fired(Break)
		w.trace(w.janitor, "=== break-lock%s", flags("of "+b.lock, b.lock != "", "only what is stale", b.stale, "as another client does", b.foreign, "the tickets", b.tickets))
		var err error
		scope := prefix(b.lock) + "lock."
		if b.foreign || b.tickets {
			scope = ""
		}
		w.mu.Lock()
		w.staleOnly, w.scope = b.stale && scope != "", scope
		w.mu.Unlock()
		switch {
		case b.tickets:
			for _, key := range w.tickets() {
				err = errors.Join(err, p.link.Delete(p.ctx, key))
			}
		case b.foreign:
			err = p.link.Delete(p.ctx, exclusiveKey)
		default:
			err = p.locker(0, b.lock).Break(p.ctx, b.stale)
		}
		if p.gone() {
			return
		}
		w.trace(w.janitor, "=== break-lock: %v", err)
	}
}

// tickets returns the keys of all waiters.
func (w *world) tickets() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Sorted(maps.Keys(w.queue))
}

// locks returns the names of all locks.
func (p *plan) locks() []string {
	names := []string{""}
	for _, c := range p.clients {
		for _, s := range c.steps {
			if !slices.Contains(names, s.lock) {
				names = append(names, s.lock)
			}
		}
	}
	return names
}

// progress checks that one of two acquirers that came at one time has got the lock.
func (w *world) progress() {
	if w.plan.scene != Duel || len(w.plan.clients[0].steps)+len(w.plan.clients[1].steps) < 2 {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.result.Acquired == 0 && w.result.Failed == 0 {
		w.violate("progress", fmt.Sprintf("two came at once, and neither has got the lock; a round trip takes %v", w.plan.slow.rtt))
	}
}

// enterAlone takes a lock when all other clients are gone.
func (w *world) enterAlone(name string) {
	p := w.plan
	last := w.newClient(len(p.clients)+1, "last", &clientPlan{ttl: p.ttl()}, w.another("last"))
	// A lock is stale when its ttl is over on the store's clock, and at most 2 s later because
	// of rounding. If the clocks don't agree, it is stale when it was watched for a ttl.
	limit := later(w.changed.Add(p.ttl()+3*time.Second), time.Now())
	if p.spread != 0 || p.rates[Jump] > 0 || p.storeJump != 0 || p.store.NoStoreClock || slices.ContainsFunc(p.leftovers, func(l leftover) bool { return l.skew != 0 }) || p.freezing() || p.sealed || len(p.reboots) > 0 {
		limit = limit.Add(p.ttl() + 5*time.Second)
	}
	if p.store.NoStoreClock || p.local { // mod times come from some client's clock
		limit = limit.Add(p.spread + time.Duration(w.result.Faults[Jump])*time.Hour + 4*time.Minute)
		for _, b := range p.reboots {
			limit = limit.Add(max(b.by, -b.by))
		}
	}
	if p.store.NoTime { // only the ticket's mod time shows the time, and that is as old as the last poll
		limit = limit.Add(10 * time.Second)
	}
	// It polls, and its early tries take some round trips for each page.
	limit = limit.Add(max(p.storeJump, -p.storeJump) + 20*time.Second + 60*p.latency)

	proc := last.living()
	var k Held
	var place string // the least key that its flags can have
	for {
		var err error
		place = prefix(name) + "lock.intent/" + last.clock.wall().UTC().Format("20060102T150405.000000000Z")
		k, err = proc.locker(0, name).Lock(context.Background(), replock.Exclusive, "last", max(time.Until(limit), 0))
		if err == nil {
			break
		}
		var held *replock.HeldError
		if !errors.As(err, &held) || time.Now().After(limit) {
			w.mu.Lock()
			w.violate("stuck", fmt.Sprintf("nobody is left, and the last one doesn't get in %v after the last write: %v", time.Since(w.changed), err))
			w.mu.Unlock()
			return
		}
		// A try each second would take many tries in an hour.
		time.Sleep(max(time.Second, (time.Until(limit)-5*time.Second)/20))
	}
	w.trace(last, "=== HOLDS the exclusive lock, alone")
	late := time.Now().After(limit)
	time.Sleep(nanoseconds(w.plan.dice.named("last").named(name))) // a holder looks and refreshes now
	if err := k.Release(context.Background()); err != nil {
		w.trace(last, "=== release: %v", err)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if late {
		w.violate("stuck", fmt.Sprintf("the last one got in only %v after its time", time.Since(limit)))
	}
	w.checkLeft(name, place)
}

// checkLeft checks that nothing is left of a lock but tickets that come after a key, and files of other programs.
func (w *world) checkLeft(name, place string) {
	page, err := w.mem.List(context.Background(), prefix(name)+"lock.", "")
	if err != nil {
		w.violate("leftover", err.Error())
	}
	for _, o := range page.Objects {
		if _, waits := w.queue[o.Key]; waits && path.Base(o.Key) > path.Base(place) {
			continue // the ticket is behind its own, by its client's clock, and blocks no client
		}
		if slices.Contains(w.aliens, o.Key) {
			continue
		}
		w.violate("leftover", fmt.Sprintf("%s is left", w.name(o.Key)))
	}
}
