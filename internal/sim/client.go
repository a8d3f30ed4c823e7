package sim

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/repolock/repolock/internal/identity"
	"github.com/repolock/repolock/replock"
)

// client takes one lock after another, in one process after another.
type client struct {
	w       *world
	number  int
	name    string
	plan    *clientPlan
	machine *machine
	clock   *clientClock
	lives   int

	mu      sync.Mutex
	life    *process // the last one
	count   map[string]int
	hit     time.Time // when one of its requests failed last, where little does
	ailing  int       // requests under way that go wrong
	trouble time.Time // when the last one of them was over
	edge    edge
}

func (w *world) newClient(number int, name string, p *clientPlan, m *machine) *client {
	c := &client{w: w, number: number, name: name, plan: p, machine: m, count: map[string]int{}}
	c.clock = &clientClock{machine: m, dice: w.plan.dice.named("clock").of(uint64(number))}
	m.clients = append(m.clients, c)
	return c
}

// nth counts the requests that look the same.
func (c *client) nth(r request) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	id := r.op + " " + r.key
	c.count[id]++
	return c.count[id]
}

// spared reports whether nothing has befallen the client for so long that something
// may, where little does.
func (c *client) spared() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if time.Since(c.hit) < c.plan.ttl/2 {
		return false
	}
	c.hit = time.Now()
	return true
}

// process is one life of a client.
type process struct {
	client *client
	ctx    context.Context
	cancel context.CancelFunc
	number int
	dead   atomic.Bool
	link   *link

	mu      sync.Mutex
	lockers map[which]Participant
}

// which of a process's Lockers: by its number and its lock's name.
type which struct {
	number int
	lock   string
}

func (p *process) gone() bool { return p.dead.Load() }

func (p *process) kill() {
	p.dead.Store(true)
	p.cancel()
}

// living is its process, or the next one.
func (c *client) living() *process {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.life == nil || c.life.gone() {
		c.lives++
		p := &process{client: c, number: c.lives, lockers: map[which]Participant{}}
		p.link = &link{c.w, p}
		p.ctx, p.cancel = context.WithCancel(c.w.ctx)
		c.life = p
	}
	return c.life
}

// locker is one of the process's Lockers.
func (p *process) locker(number int, lock string) Participant {
	p.mu.Lock()
	defer p.mu.Unlock()
	id := which{number, lock}
	if p.lockers[id] == nil {
		p.lockers[id] = p.join(id)
	}
	return p.lockers[id]
}

func (p *process) join(id which) Participant {
	c := p.client
	d := c.w.plan.dice.named("random").of(uint64(c.number), uint64(p.number))
	if id != (which{}) {
		d = d.of(uint64(id.number)).named(id.lock)
	}
	protocol := c.w.protocol
	if c.plan.foreign {
		protocol = asForeign{}
	}
	return protocol.Join(p.link, Member{
		Name: fmt.Sprintf("%s (pid %d)", c.name, p.number), Lock: id.lock, TTL: c.plan.ttl, Clock: c.clock, Rand: &random{d},
		Self: identity.Process{
			Hostname: c.name, HostID: c.machine.boot, BootID: c.machine.boot, TimeNamespace: "time:[1]", PID: p.number, User: "sim",
		},
	})
}

// random gives the same to all who read at the same time, so that it doesn't
// matter who comes first.
type random struct{ dice dice }

func (r *random) Read(b []byte) (int, error) {
	r.dice.of(uint64(time.Now().UnixNano()), uint64(len(b))).fill(b)
	return len(b), nil
}

// run does what the client's plan says.
func (c *client) run() {
	threads := map[int][]step{}
	for _, s := range c.plan.steps {
		threads[s.thread] = append(threads[s.thread], s)
	}
	var wg sync.WaitGroup
	for _, steps := range threads {
		wg.Go(func() {
			for _, s := range steps {
				<-c.clock.After(s.wait)
				if c.w.ctx.Err() != nil {
					return
				}
				c.take(c.living(), s)
			}
		})
	}
	wg.Wait()
}

// take one lock, hold it, and let it go.
func (c *client) take(p *process, s step) {
	w, locker := c.w, p.locker(s.locker, s.lock)
	pctx := context.WithValue(p.ctx, forStep{}, &s)
	began, wait := time.Now(), time.Duration(0)
	if s.queues {
		wait, s.patience = s.patience, 0
	}
	w.trace(c, "=== wants the %v lock%s [%s]", s.mode, upTo(wait), s.name)
	k, err := locker.Lock(pctx, s.mode, s.name, wait)
	for waited := time.Duration(0); errors.Is(err, replock.ErrHeld) && waited < s.patience && p.ctx.Err() == nil; waited += s.pause {
		<-c.clock.After(s.pause)
		began = time.Now()
		k, err = locker.Lock(pctx, s.mode, s.name, 0)
	}
	if p.gone() {
		return
	}
	if err != nil {
		w.refused(c, s, err)
		return
	}
	h := w.begin(p, s, k, nil, began)
	c.approach(k)
	c.attend(pctx, h)
	for hold := s.hold; ; hold = min(hold, c.plan.ttl) {
		select {
		case <-c.clock.After(hold):
		case <-k.Context().Done():
		}
		if p.gone() {
			return
		}
		if k.Context().Err() == nil || w.ctx.Err() != nil {
			break
		}
		w.lost(h)
		if !s.resume {
			break
		}
		asked := time.Now()
		ctx, cancel := context.WithTimeout(pctx, 5*c.plan.ttl)
		quit := c.quit(ctx, h)
		next, err := k.Resume(ctx)
		cancel()
		if p.gone() {
			return
		}
		if <-quit {
			if err == nil {
				w.undead(h, next)
				_ = next.Release(pctx)
			}
			break
		}
		if err != nil {
			w.trace(c, "=== can't resume: %v", err)
			break
		}
		k, h = next, w.begin(p, s, next, h, asked)
		c.attend(pctx, h)
	}
	for _, look := range []struct {
		due  bool
		look func(context.Context) error
		text string
	}{{s.check, k.Check, "checks"}, {s.confirm, k.Confirm, "confirms"}} {
		time.Sleep(nanoseconds(w.plan.dice.named(s.name).named(look.text)) / 10) // and not when anything else is sent
		if look.due && k.Context().Err() == nil {
			asked := time.Now()
			err := look.look(pctx)
			w.trace(c, "=== %s its lock: %t", look.text, err == nil) // of two reasons either may be given
			w.checked(h, asked, err)
		}
	}
	if p.gone() {
		return
	}
	w.trace(c, "=== releases")
	w.end(h)
	if s.meddles > 0 {
		go func() {
			time.Sleep(nanoseconds(w.plan.dice.named(s.name).named("twice")))
			_ = k.Release(pctx)
		}()
	}
	err = k.Release(pctx)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.say(c, "=== has released: %v", err)
	w.tidied(c)
}

func upTo(wait time.Duration) string {
	if wait == 0 {
		return ""
	}
	return fmt.Sprintf(", and waits up to %v for it", wait)
}

// refused is told of a lock that wasn't granted.
func (w *world) refused(c *client, s step, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.say(c, "=== not granted: %v [%s]", err, s.name)
	w.tidied(c)
	if errors.Is(err, replock.ErrHeld) {
		w.result.Held++
		return
	}
	w.result.Failed++
	if w.plan.survivable() && w.ctx.Err() == nil && w.config.Protocol == nil && !w.plan.slow.near(c.plan.ttl) {
		w.violate("failed", fmt.Sprintf("%s didn't get its lock [%s] although next to nothing had gone wrong: %v", c.name, s.name, err))
	}
}

// attend has done beside a lock that is held what is planned.
func (c *client) attend(ctx context.Context, h *holding) {
	if c.w.plan.freezing() && !c.plan.foreign {
		go c.w.guard(h)
	}
	c.meddle(ctx, h)
}

// meddle has others ask for a lock while it is held, and at about the time when it is
// released.
func (c *client) meddle(ctx context.Context, h *holding) {
	for n := range uint64(h.step.meddles) {
		d := c.w.plan.dice.named(h.step.name).named("meddle").of(uint64(h.began.UnixNano()), n)
		at := d.of(1).between(0, h.step.hold)
		if d.of(3).chance(.3) {
			at = h.step.hold + d.of(4).between(-10*c.w.plan.latency, 10*c.w.plan.latency)
		}
		go func() {
			<-c.clock.After(max(at, 0) + nanoseconds(d.of(2))) // and at no other's time
			if !c.w.holds(h) {
				return
			}
			ask, text := h.lock.Check, "checks"
			if d.of(5).chance(.5) {
				ask, text = h.lock.Confirm, "confirms"
			}
			asked := time.Now()
			err := ask(ctx)
			if !h.p.gone() {
				c.w.trace(c, "=== beside it, %s its lock: %t", text, err == nil)
				c.w.checked(h, asked, err)
			}
		}()
	}
}

// quit releases a lock while it is being resumed, if that is planned. What it returns
// says whether it did.
func (c *client) quit(ctx context.Context, h *holding) <-chan bool {
	did := make(chan bool, 1)
	if !h.step.quits {
		did <- false
		return did
	}
	d := c.w.plan.dice.named(h.step.name).named("quit").of(uint64(time.Now().UnixNano()))
	at := pick(d.of(1), d.of(2).between(0, 20*c.w.plan.latency), d.of(2).between(0, 20*c.w.plan.latency), d.of(2).between(0, c.plan.ttl))
	go func() {
		select {
		case <-c.clock.After(at + nanoseconds(d.of(3))):
		case <-ctx.Done(): // it is over
		}
		if h.p.gone() || ctx.Err() != nil {
			did <- false
			return
		}
		c.w.trace(c, "=== releases the lock that it resumes")
		c.w.end(h)
		err := h.lock.Release(ctx)
		c.w.trace(c, "=== has released it: %v", err)
		did <- true
	}()
	return did
}

// edge is the outage of a client that ends shortly before its lock's deadline.
type edge struct {
	lock     Held
	from, to time.Time
}

// approach has the outage begin that is planned for when a lock is held.
func (c *client) approach(k Held) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.plan.brink.to > 0 && c.edge.lock == nil {
		c.edge = edge{lock: k, from: time.Now().Add(c.plan.brink.from)}
	}
}

// onTheBrink reports whether it goes on.
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
