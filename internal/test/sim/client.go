package sim

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"github.com/repolock/repolock/internal/clock"
	"github.com/repolock/repolock/internal/identity"
	"github.com/repolock/repolock/internal/lease"
	"github.com/repolock/repolock/replock"
	"github.com/repolock/repolock/store"
)

// client acquires one lock after another. If its process dies, another one continues.
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
	title   string // of a copy, in the timeline
	twins   *twins
}

func (w *world) newClient(number int, name string, p *clientPlan, m *machine) *client {
	c := &client{w: w, number: number, name: name, plan: p, machine: m, count: map[string]int{}}
	c.clock = &clientClock{machine: m, dice: w.plan.dice.named("clock").of(uint64(number)), shift: p.shift, unstopped: w.plan.unstopped()}
	m.clients = append(m.clients, c)
	return c
}

// nth counts the requests that look the same.
func (c *client) nth(r *request) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	looks := r.looks()
	c.count[looks]++
	return c.count[looks]
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

// attend does the planned actions beside a held lock: it calls Refresh or Check while the lock is held, and around
// its release.
func (c *client) attend(ctx context.Context, h *holding) {
	if c.w.plan.freezing() && !c.plan.foreign {
		go c.w.guard(h)
	}
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
			ask, text := h.lock.Refresh, "checks"
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
		protocol = original{}
		if c.w.plan.sealed {
			s = sealing{s}
		}
		if c.plan.behind {
			protocol = original{late}
		}
	}
	return protocol.Join(s, Member{
		Name: fmt.Sprintf("%s (pid %d)", c.name, p.number), Lock: id.lock, TTL: c.plan.ttl, Clock: p.clock, Rand: &random{d},
		Self: identity.Process{
			Hostname: c.name, HostID: c.machine.host, BootID: c.machine.bootID(), TimeNamespace: namespace(c.plan.namespace), PID: 1000*(c.number+1) + p.number, User: "sim",
		},
		Granted: c.w.decided, Beside: c.w.plan.beside(),
	})
}

// random returns the same bytes to all readers at one time: their order must not matter.
type random struct{ dice dice }

func (r *random) Read(b []byte) (int, error) {
	r.dice.of(uint64(time.Now().UnixNano()), uint64(len(b))).fill(b)
	return len(b), nil
}

// take takes one lock, holds it, and releases it.
func (c *client) take(p *process, s step) {
	w := c.w
	ctx := context.WithValue(p.ctx, forStep{}, &s)
	k, began, err := c.ask(ctx, p, &s)
	if p.gone() {
		return
	}
	if err != nil {
		w.refused(c, s, began, err)
		return
	}
	h := w.begin(p, s, k, nil, began)
	c.approach(k)
	c.attend(ctx, h)
	if h = c.hold(ctx, h); p.gone() {
		return
	}
	w.done(h)
	c.lastLooks(ctx, h)
	if p.gone() {
		return
	}
	w.trace(c, "=== releases")
	w.end(h)
	if s.meddles > 0 {
		go func() {
			time.Sleep(nanoseconds(w.plan.dice.named(s.name).named("twice")))
			_ = h.lock.Release(ctx)
		}()
	}
	w.released(h, h.lock.Release(ctx))
}

// ask asks for a lock, again and again if the step has patience. It returns when it began to ask
// for the last time.
func (c *client) ask(ctx context.Context, p *process, s *step) (k Held, began time.Time, err error) {
	locker := p.locker(s.locker, s.lock)
	wait := time.Duration(0)
	if s.queues {
		wait, s.patience = s.patience, 0
	}
	began = time.Now()
	if s.queues {
		c.w.waits(*s, began, true)
		defer c.w.waits(*s, began, false)
	}
	c.w.trace(c, "=== wants the %v lock%s [%s]", s.mode, flags("with a fence", s.fence, fmt.Sprintf("and waits up to %v for it", wait), wait > 0, fmt.Sprintf("within %v", s.within), s.within > 0), s.name)
	k, err = locker.Lock(ctx, s.mode, s.operation(), wait)
	for waited := time.Duration(0); errors.Is(err, replock.ErrHeld) && waited < s.patience && p.ctx.Err() == nil; waited += s.pause {
		<-c.clock.After(s.pause)
		began = time.Now()
		k, err = locker.Lock(ctx, s.mode, s.operation(), 0)
	}
	return k, began, err
}

// hold holds a lock, and resumes it when it is lost, if the step does. It returns the last lock.
func (c *client) hold(ctx context.Context, h *holding) *holding {
	w, p, s := c.w, h.p, h.step
	for hold := s.hold; ; hold = min(hold, c.plan.ttl) {
		select {
		case <-c.clock.After(hold):
		case <-h.lock.Context().Done():
		}
		if p.gone() || h.lock.Context().Err() == nil || w.ctx.Err() != nil {
			return h
		}
		w.lost(h)
		if !s.resume {
			return h
		}
		asked := time.Now()
		rctx, cancel := context.WithTimeout(ctx, 5*c.plan.ttl)
		quit := c.quit(rctx, h)
		next, err := h.lock.Resume(rctx)
		cancel()
		if p.gone() {
			return h
		}
		if released := <-quit; released || err != nil {
			c.notResumed(ctx, h, next, released, err)
			return h
		}
		h = w.begin(p, s, next, h, asked)
		c.attend(ctx, h)
	}
}

// lastLooks looks at a lock before its release, if the step does.
func (c *client) lastLooks(ctx context.Context, h *holding) {
	w, s := c.w, h.step
	for _, look := range []struct {
		due  bool
		look func(context.Context) error
		text string
	}{{s.check, h.lock.Refresh, "checks"}, {s.confirm, h.lock.Check, "confirms"}} {
		time.Sleep(nanoseconds(w.plan.dice.named(s.operation()).named(look.text)) / 10) // and not when anything else is sent
		if look.due && h.lock.Context().Err() == nil {
			asked := time.Now()
			err := look.look(ctx)
			w.trace(c, "=== %s its lock: %t", look.text, err == nil) // there can be two reasons, and either can be returned
			w.checked(h, asked, err)
			if look.text == "confirms" && err == nil {
				w.unnoticed(h, asked)
			}
		}
	}
}

// released follows a lock that was released.
func (w *world) released(h *holding, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if h.p.client.follows() {
		return
	}
	w.say(h.p.client, "=== has released: %v", err)
	w.tidied(h.p.client, h.step)
	w.prompt(h)
}

// notResumed follows a lock that was released while it was being resumed, or can't be resumed.
func (c *client) notResumed(ctx context.Context, h *holding, next Held, released bool, err error) {
	switch {
	case !released:
		c.w.trace(c, "=== can't resume: %v", err)
		c.w.unresumed(h, err)
	case err == nil && next.Context().Err() == nil:
		c.w.undead(h, next)
		_ = next.Release(ctx)
	}
}

// refused follows a lock that wasn't granted.
func (w *world) refused(c *client, s step, asked time.Time, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if c.follows() {
		return
	}
	w.say(c, "=== not granted: %v [%s]", err, s.name)
	delete(w.paces, s.name)
	w.tidied(c, s)
	if errors.Is(err, context.DeadlineExceeded) && s.within > 0 { // it names what its last look has found, however long ago
		w.result.Held++
		return
	}
	if errors.Is(err, replock.ErrHeld) {
		w.result.Held++
		w.keptOut(c, s, asked, err)
		w.keptOutInVain(c, s)
		w.stalled(c, s)
		return
	}
	w.result.Failed++
	if w.plan.survivable() && w.ctx.Err() == nil && w.config.Protocol == nil && !w.plan.slow.near(c.plan.ttl) && !(errors.Is(err, replock.ErrNoFencingToken) && !w.plan.fit(c.plan)) {
		w.violate("failed", fmt.Sprintf("%s didn't get its lock [%s] although next to nothing had gone wrong: %v", c.name, s.name, err))
	}
}

// Protocol is the protocol of the clients.
type Protocol interface {
	Join(store.Store, Member) Participant
}

// Member is one participant.
type Member struct {
	Name string
	Lock string // the name of the lock, for a repository that has several
	TTL  time.Duration
	clock.Clock
	Rand   io.Reader
	Self   identity.Process
	Beside replock.Beside
	// Granted is called when a lock with this id is granted or resumed, before the call returns.
	Granted func(id string)
}

// Process is the process that replock.New sees.
func (m Member) Process() (io.Reader, identity.Process) { return m.Rand, m.Self }

// Participant is a process that can take locks.
type Participant interface {
	// Lock acquires a lock. It waits this long while another client holds it.
	Lock(ctx context.Context, mode replock.Mode, operation string, wait time.Duration) (Held, error)
	// Break deletes all locks, or only the ones that are stale by its own judgement.
	Break(ctx context.Context, stale bool) error
}

// Held is a lock that was granted. See replock.Lock for the methods.
type Held interface {
	Key() string
	ID() string
	Context() context.Context
	Deadline() time.Duration
	Seen() clock.Reading
	Refresh(context.Context) error
	Check(context.Context) error
	Resume(context.Context) (Held, error)
	Release(context.Context) error
}

// engine is the protocol under test.
type engine struct{}

func (engine) Join(s store.Store, m Member) Participant {
	l, err := replock.New(s, replock.Options{Name: m.Lock, TTL: m.TTL, Clock: m, Beside: m.Beside, Observe: func(e replock.Event) {
		if e.Kind == replock.EventAcquired || e.Kind == replock.EventResumed {
			m.Granted(e.ID)
		}
	}})
	if err != nil {
		panic(err) // a plan with impossible options
	}
	return locker{l}
}

type locker struct{ *replock.Locker }

func (l locker) Lock(ctx context.Context, mode replock.Mode, operation string, wait time.Duration) (Held, error) {
	take := l.Shared
	if mode == replock.Exclusive {
		take = l.Exclusive
	}
	opts := []replock.AcquireOption{replock.WithWait(wait)}
	s, _ := ctx.Value(forStep{}).(*step)
	if s != nil && s.fence {
		opts = append(opts, replock.WithFencingToken())
	}
	if s != nil && s.within > 0 {
		opts = append(opts, replock.WithParent(ctx))
		limited, cancel := context.WithTimeout(ctx, s.within)
		defer cancel()
		ctx = limited
	}
	k, err := take(ctx, operation, opts...)
	if err != nil {
		return nil, err
	}
	return held(k), nil
}

func (l locker) Break(ctx context.Context, stale bool) error {
	_, err := l.Locker.Break(ctx, replock.BreakOptions{Stale: stale})
	return err
}

// lock is a replock.Lock between an acquire or a resume and the next loss or release. The monitor follows each
// of these terms, while the replock.Lock stays the same.
type lock struct {
	*replock.Lock
	ctx     context.Context
	id, key string
	end     *atomic.Int64 // once it is resumed: its last deadline
	seen    *atomic.Pointer[clock.Reading]
}

func held(k *replock.Lock) lock {
	return lock{Lock: k, ctx: k.Context(), id: k.ID(), key: k.Key(), end: new(atomic.Int64), seen: new(atomic.Pointer[clock.Reading])}
}

func (k lock) Context() context.Context { return k.ctx }
func (k lock) ID() string               { return k.id }
func (k lock) Key() string              { return k.key }

func (k lock) Deadline() time.Duration {
	if end := k.end.Load(); end != 0 {
		return time.Duration(end)
	}
	return lease.Of(k.ctx).Deadline()
}

func (k lock) Seen() clock.Reading {
	if seen := k.seen.Load(); seen != nil {
		return *seen
	}
	return lease.Of(k.ctx).Seen()
}

// Resume keeps the deadline and the last sighting of the term that has ended.
func (k lock) Resume(ctx context.Context) (Held, error) {
	end, seen := lease.Of(k.ctx).Deadline(), lease.Of(k.ctx).Seen()
	k.end.Store(int64(end))
	k.seen.Store(&seen)
	if err := k.Lock.Resume(ctx); err != nil {
		return nil, err
	}
	return held(k.Lock), nil
}
