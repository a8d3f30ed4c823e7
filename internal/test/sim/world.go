package sim

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/repolock/repolock/store/mem"
)

// world is a running history.
type world struct {
	config   Config
	plan     *plan
	protocol Protocol
	start    time.Time
	ctx      context.Context // ends all clients
	mem      *mem.Store
	machines map[int]*machine
	janitor  *client
	calm     atomic.Bool  // no more faults
	flying   atomic.Int64 // requests under way

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
	Faults    [kinds]int

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
		r.Timeline = w.timeline.String()
		w.bury()
		time.Sleep(time.Hour) // until the stopped clients have ended
	})
	return r
}

func newWorld(config Config, r *Result) *world {
	w := &world{
		config: config, plan: newPlan(&config), protocol: config.Protocol, result: r,
		start: time.Now(), changed: time.Now(),
		monitor: monitor{
			broken: map[string]time.Time{}, undone: map[string]bool{}, owner: map[string]*client{}, queue: map[string]ticket{},
			seen: map[string]sighting{}, present: map[string]presence{}, turns: map[string]*client{}, looks: map[string][]time.Time{}, grants: map[string]time.Time{}, over: map[string]time.Time{}, pointers: map[string]*pointer{}, lives: map[string][]life{},
		},
		machines: map[int]*machine{},
	}
	if w.protocol == nil {
		w.protocol = engine{}
	}
	w.timeline.on = config.Trace
	w.plan.store.Now = w.storeTime
	for k, is := range map[Kind]bool{
		StoreJump: w.plan.storeJump != 0, Gateways: w.plan.gateways != 0,
		Poor: w.plan.store.Precision > 0 || w.plan.store.NoTime || w.plan.store.NoStoreClock,
	} {
		if is {
			r.Faults[k]++
		}
	}
	if w.plan.has(func(c *clientPlan) bool { return c.namespace > 0 }) {
		r.Faults[Namespaces]++
	}
	if w.plan.scene != None {
		r.Faults[w.plan.scene]++
	}
	w.mem = mem.New(w.plan.store)
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
	if w.plan.storeJump != 0 && time.Since(w.start) >= w.plan.storeJumpAt {
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
	case <-time.After(30*ttl + time.Minute):
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
	for _, lock := range w.locks() {
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
		parts = append(parts, w.newClient(n, fmt.Sprintf("c%d", n+1), p, w.machines[p.machine]).run)
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

// another is a machine that is no client.
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
