package sim

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/repolock/repolock/internal/identity"
	"github.com/repolock/repolock/store"
)

// process is one life of a client.
type process struct {
	client *client
	ctx    context.Context
	cancel context.CancelFunc
	number int
	dead   atomic.Bool
	link   *link
	clock  *processClock

	mu      sync.Mutex
	lockers map[which]Participant
}

// one of a process's Lockers: its number and its lock's name.
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
		p := &process{client: c, number: c.lives, lockers: map[which]Participant{}, clock: &processClock{c.clock, c.machine.bootedAt()}}
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
	protocol, s := c.w.protocol, store.Store(p.link)
	if c.plan.foreign {
		protocol = asForeign{}
		if c.plan.intrudes {
			s = intruder{s, c.name}
		}
		if c.w.plan.sealed {
			s = sealing{s}
		}
		if c.plan.behind {
			protocol = asForeign{"z"}
		}
	}
	return protocol.Join(s, Member{
		Name: fmt.Sprintf("%s (pid %d)", c.name, p.number), Lock: id.lock, TTL: c.plan.ttl, Clock: p.clock, Rand: &random{d},
		Self: identity.Process{
			Hostname: c.name, HostID: c.machine.host, BootID: c.machine.bootID(), TimeNamespace: namespace(c.plan.namespace), PID: 1000*(c.number+1) + p.number, User: "sim",
		},
		Granted: c.w.decided,
	})
}

// random returns the same bytes to all readers at one time, so that their order doesn't
// matter.
type random struct{ dice dice }

func (r *random) Read(b []byte) (int, error) {
	r.dice.of(uint64(time.Now().UnixNano()), uint64(len(b))).fill(b)
	return len(b), nil
}
