package sim

import (
	"context"
	"sync"
	"time"
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
	hit     time.Time // when one of its requests failed last, in a history with few faults
	ailing  int       // requests under way that go wrong
	trouble time.Time // when the last one of them was over
	edge    edge
}

func (w *world) newClient(number int, name string, p *clientPlan, m *machine) *client {
	c := &client{w: w, number: number, name: name, plan: p, machine: m, count: map[string]int{}}
	c.clock = &clientClock{machine: m, dice: w.plan.dice.named("clock").of(uint64(number)), shift: p.shift}
	m.clients = append(m.clients, c)
	return c
}

// nth counts the requests that look the same.
func (c *client) nth(r request) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.count[r.looks()]++
	return c.count[r.looks()]
}

// spared reports whether the client has had no fault for half a ttl, in a history with few
// faults.
func (c *client) spared() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if time.Since(c.hit) < c.plan.ttl/2 {
		return false
	}
	c.hit = time.Now()
	return true
}

// run follows the client's plan.
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

// attend does the planned actions beside a held lock.
func (c *client) attend(ctx context.Context, h *holding) {
	if c.w.plan.freezing() && !c.plan.foreign {
		go c.w.guard(h)
	}
	c.meddle(ctx, h)
}

// meddle makes others ask for a lock while it is held, and at about the time when it is
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
			ask, text := h.lock.Renew, "checks"
			if d.of(5).chance(.5) {
				ask, text = h.lock.Check, "confirms"
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

// quit releases a lock while it is being resumed, if that is planned, and reports whether it
// did.
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
