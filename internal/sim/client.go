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

	mu    sync.Mutex
	count map[string]int
	hit   time.Time // when one of its requests failed last, where little does
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
	dead   atomic.Bool
	link   *link
	Participant
}

func (p *process) gone() bool { return p.dead.Load() }

func (p *process) kill() {
	p.dead.Store(true)
	p.cancel()
}

// born starts a process.
func (c *client) born() *process {
	c.lives++
	p := &process{client: c}
	p.link = &link{c.w, p}
	p.ctx, p.cancel = context.WithCancel(c.w.ctx)
	p.Participant = c.w.protocol.Join(p.link, Member{
		Name: fmt.Sprintf("%s (pid %d)", c.name, c.lives), TTL: c.plan.ttl, Clock: c.clock,
		Rand: &random{c.w.plan.dice.named("random").of(uint64(c.number), uint64(c.lives))},
		Self: identity.Process{Hostname: c.name, HostID: c.machine.boot, BootID: c.machine.boot, PID: c.lives, User: "sim"},
	})
	return p
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
	p := c.born()
	for _, s := range c.plan.steps {
		<-c.clock.After(s.wait)
		if c.w.ctx.Err() != nil {
			return
		}
		if p.gone() {
			p = c.born()
		}
		c.take(p, s)
	}
}

// take one lock, hold it, and let it go.
func (c *client) take(p *process, s step) {
	w := c.w
	began, wait := time.Now(), time.Duration(0)
	if s.queues {
		wait, s.patience = s.patience, 0
	}
	w.trace(c, "=== wants the %v lock%s [%s]", s.mode, upTo(wait), s.name)
	k, err := p.Lock(p.ctx, s.mode, s.name, wait)
	for waited := time.Duration(0); errors.Is(err, replock.ErrHeld) && waited < s.patience && p.ctx.Err() == nil; waited += s.pause {
		<-c.clock.After(s.pause)
		began = time.Now()
		k, err = p.Lock(p.ctx, s.mode, s.name, 0)
	}
	if p.gone() {
		return
	}
	if err != nil {
		w.refused(c, s, err)
		return
	}
	h := w.begin(p, s, k, nil, began)
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
		ctx, cancel := context.WithTimeout(p.ctx, 5*c.plan.ttl)
		next, err := k.Resume(ctx)
		cancel()
		if p.gone() {
			return
		}
		if err != nil {
			w.trace(c, "=== can't resume: %v", err)
			break
		}
		k, h = next, w.begin(p, s, next, h, asked)
	}
	for _, look := range []struct {
		due  bool
		look func(context.Context) error
		text string
	}{{s.check, k.Check, "checks"}, {s.confirm, k.Confirm, "confirms"}} {
		time.Sleep(nanoseconds(w.plan.dice.named(s.name).named(look.text)) / 10) // and not when anything else is sent
		if look.due && k.Context().Err() == nil {
			asked := time.Now()
			err := look.look(p.ctx)
			w.trace(c, "=== %s its lock: %t", look.text, err == nil) // of two reasons either may be given
			w.checked(h, asked, err)
		}
	}
	if p.gone() {
		return
	}
	w.trace(c, "=== releases")
	w.end(h)
	err = k.Release(p.ctx)
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
	if w.plan.survivable() && w.ctx.Err() == nil && w.config.Protocol == nil {
		w.violate("failed", fmt.Sprintf("%s didn't get its lock [%s] although next to nothing had gone wrong: %v", c.name, s.name, err))
	}
}
