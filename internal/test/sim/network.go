package sim

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/repolock/repolock/store"
)

// link is one process's faulty network to the store.
type link struct {
	w *world
	p *process
}

// request is a request to the store.
type request struct {
	op, key, cursor string
	keys            []string // of a request to delete many
	body            []byte
	opts            store.PutOptions
	handed          time.Time // to the link, by a client that can be stopped before it is sent
	wall            time.Time // the sender's wall clock then
	after           time.Time // of a put: when the sender's last look at its key was sent
	step            *step     // the step that it is sent for
	staleOnly       bool      // by a break-lock that must remove stale locks alone
	scope           string    // the prefix of the keys that a break-lock can remove
	saw             *client   // the owner of the lock.exclusive that the answer before showed to the same step
	shows           **client  // the owner that this one finds
	pace            *pace     // of the step, if it waits
	found           *found    // by a look of that step
}

func (r *request) conditional() bool { return r.opts.IfAbsent || r.opts.IfMatch != "" }
func (r *request) writes() bool      { return r.op == "put" || r.op == "delete" || r.op == deleteAll }

// looks is the same for requests that can be sent at one time and differ in nothing that counts.
func (r *request) looks() string {
	if r.opts.IfAbsent {
		return r.op + " if absent " + r.key
	}
	return r.op + " " + r.key
}

var (
	errGone     = fmt.Errorf("the process is gone: %w", store.ErrPermission) // permanent: it tries nothing else
	errReset    = errors.New("connection reset by peer")
	errBusy     = errors.New("503 SlowDown")
	errBroken   = errors.New("500 InternalError")
	errConflict = errors.New("409 ConditionalRequestConflict")
)

// send takes a request that is one step to the store and its answer back.
func (l *link) send(ctx context.Context, r *request, apply func() (any, error)) (any, error) {
	return l.sendSteps(ctx, r, func(f *mishap) (any, error) { return l.atStore(r, f, apply) })
}

// sendSteps is send for a request that the store applies in several steps, by atStore.
func (l *link) sendSteps(ctx context.Context, r *request, apply func(*mishap) (any, error)) (v any, err error) {
	if l.p.gone() {
		return nil, errGone
	}
	c := l.p.client
	if c.plan.foreign {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, foreignTimeout)
		defer cancel()
	}
	r.handed, r.wall = time.Now(), c.machine.wall()
	r.step, _ = ctx.Value(forStep{}).(*step)
	r.shows = new(*client)
	r.staleOnly, r.scope, r.saw = l.w.handed(l.p, r)
	defer func() { l.w.rested(r, err) }()
	if r.op == "put" {
		r.after = l.w.lastLook(c, r.step, r.key)
	}
	l.w.flying.Add(1)
	defer l.w.flying.Add(-1)
	n := c.nth(r)
	d := c.diverge(l.w.plan.dice.named("request").of(uint64(c.number), uint64(n)).named(r.looks()))
	if c.follows() {
		return c.follow(r.looks(), n, d)
	}
	v, err = l.sendOne(ctx, r, d, apply)
	c.publish(r.looks(), n, v, err)
	return v, err
}

// sendOne is sendSteps for a request that has been counted.
func (l *link) sendOne(ctx context.Context, r *request, d dice, apply func(*mishap) (any, error)) (any, error) {
	c := l.p.client
	time.Sleep(nanoseconds(d.of(24)) / 10) // goroutines that send at one time send one after another
	c.clock.awake(d.of(20))
	if l.p.gone() {
		return nil, errGone
	}
	f := l.w.decide(c, r, d)
	if f.kind != None {
		l.w.fired(f.kind)
		defer c.ail()()
	}
	if !f.after && l.strike(f) {
		c.clock.awake(d.of(21))
		if l.p.gone() {
			return nil, errGone
		}
	}
	l.w.trace(c, "%v", said{r, f})
	answered := make(chan got, 1)
	l.w.flying.Add(1)
	l.w.couriers.run(func() {
		defer l.w.flying.Add(-1)
		l.travel(f, answered, apply)
	})
	return l.await(ctx, r, f, answered)
}

// await waits for the answer to a request, until its context ends.
func (l *link) await(ctx context.Context, r *request, f *mishap, answered <-chan got) (any, error) {
	c := l.p.client
	var late <-chan time.Time
	if deadline, ok := ctx.Deadline(); ok {
		// A moment before the context ends, so that this and another waiter for it don't wake at the same time.
		timer := time.NewTimer(time.Until(deadline) - nanoseconds(f.dice.of(10)) - 1)
		defer timer.Stop()
		late = timer.C
	}
	select {
	case a := <-answered:
		if l.p.gone() {
			return nil, errGone
		}
		l.w.answered(l.p, r, a.err)
		l.w.trace(c, "%v: %v", asked{r}, a)
		return a.v, a.err
	case <-late:
	case <-ctx.Done():
	}
	// A client that was stopped meanwhile finds both when it continues: that it has waited for
	// too long, and perhaps the answer.
	c.clock.awake(f.dice.of(25))
	select {
	case a := <-answered:
		if !l.p.gone() {
			l.w.answered(l.p, r, a.err)
			l.w.trace(c, "%v: %v, late", asked{r}, a)
			return a.v, a.err
		}
	default:
	}
	if l.p.gone() {
		return nil, errGone
	}
	l.w.trace(c, "%v: no answer", asked{r})
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	return nil, context.DeadlineExceeded
}

// strike applies a request's fault to its sender.
func (l *link) strike(f *mishap) bool {
	c := l.p.client
	switch f.kind {
	case Pause:
		l.w.trace(c, "~~~ stopped for %v [%s]", f.long.Round(time.Millisecond), f.id)
		c.clock.Stop(f.long)
	case Suspend:
		l.w.trace(c, "~~~ its machine is suspended for %v [%s]", f.long.Round(time.Millisecond), f.id)
		for _, each := range c.machine.clients {
			each.clock.Stop(f.long)
		}
	case Freeze:
		l.w.trace(c, "~~~ its machine is paused by the hypervisor for %v [%s]", f.long.Round(time.Millisecond), f.id)
		l.w.freeze(c.machine, f.long, f.set)
	case Crash:
		l.w.trace(c, "~~~ killed [%s]", f.id)
		l.p.kill()
	case Jump:
		by := pick(f.dice.of(11), time.Hour, -time.Hour, 5*time.Minute, -5*time.Minute)
		l.w.trace(c, "~~~ its wall clock jumps by %v [%s]", by, f.id)
		c.machine.jump(by)
	default:
		return false
	}
	return true
}

// couriers are goroutines that carry one request after another. A new goroutine for each would grow its stack each time.
type couriers struct {
	mu        sync.Mutex
	idle      []chan func()
	dismissed bool
}

// run calls f in another goroutine.
func (c *couriers) run(f func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if n := len(c.idle) - 1; n >= 0 {
		c.idle[n] <- f
		c.idle = c.idle[:n]
		return
	}
	next := make(chan func(), 1)
	next <- f
	go func() {
		for f := range next {
			f()
			c.rest(next)
		}
	}()
}

func (c *couriers) rest(next chan func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.dismissed {
		close(next)
		return
	}
	c.idle = append(c.idle, next)
}

// dismiss ends the goroutines once they are idle.
func (c *couriers) dismiss() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.dismissed = true
	for _, next := range c.idle {
		close(next)
	}
	c.idle = nil
}

// travel is the way of a request to the store, and of the answer back.
func (l *link) travel(f *mishap, answered chan<- got, apply func(*mishap) (any, error)) {
	time.Sleep(f.there)
	switch f.kind {
	case Lost, Outage:
		l.reply(f, answered, nil, errReset)
	case Busy:
		l.reply(f, answered, nil, errBusy)
	case Conflict:
		l.reply(f, answered, nil, errConflict)
	case Late:
		l.reply(f, answered, nil, errReset)
		time.Sleep(f.long)
		apply(f)
	case Unanswered:
		apply(f)
		l.reply(f, answered, nil, errReset)
	case Broken:
		apply(f)
		l.reply(f, answered, nil, errBroken)
	case Twice:
		v, err := apply(f)
		l.reply(f, answered, v, err)
		time.Sleep(f.long)
		apply(f)
	default:
		v, err := apply(f)
		l.reply(f, answered, v, err)
	}
}

// reply brings the answer to a running process, unless the fault leaves its sender waiting.
func (l *link) reply(f *mishap, answered chan<- got, v any, err error) {
	if f.hang {
		return
	}
	time.Sleep(f.back)
	l.p.client.clock.awake(f.dice.of(22))
	if f.after && l.strike(f) {
		l.p.client.clock.awake(f.dice.of(23))
	}
	answered <- got{v, err}
}

// atStore applies a request, as one step.
func (l *link) atStore(r *request, f *mishap, apply func() (any, error)) (any, error) {
	w := l.w
	w.mu.Lock()
	defer w.mu.Unlock()
	w.sender, w.sent, w.stamp = l.p.client, f.dice, r.wall
	w.breaking(l.p, r)
	turn := w.turnover(l.p.client, r)
	wrong := w.trespass(l.p, r)
	v, err := apply()
	if err == nil {
		turn()
	}
	if wrong != "" && err == nil {
		w.violate("trespass", wrong)
	}
	w.applied(l.p, r, v, err)
	return v, err
}

// Put sends.
func (l *link) Put(ctx context.Context, key string, body []byte, opts store.PutOptions) (store.Object, error) {
	key = l.named(key)
	r := &request{op: "put", key: key, body: body, opts: opts}
	v, err := l.send(ctx, r, func() (any, error) {
		if l.w.plan.refuses && opts.IfMatch != "" {
			return nil, &store.Error{Op: "put", Key: key, Err: store.ErrPrecondition}
		}
		return l.w.mem.Put(context.Background(), key, body, opts)
	})
	o, _ := v.(store.Object)
	return o, err
}

func (l *link) named(key string) string {
	if l.p.client.plan.behind {
		return named(key, late)
	}
	return key
}

// forStep is the key of a context's value: the step that a request is sent for.
type forStep struct{}

// content is the result of a Get.
type content struct {
	raw    []byte
	object store.Object
}

// Get sends.
func (l *link) Get(ctx context.Context, key string, limit int64) ([]byte, store.Object, error) {
	v, err := l.send(ctx, &request{op: "get", key: key}, func() (any, error) {
		raw, o, err := l.w.mem.Get(context.Background(), key, limit)
		if c := l.p.client; err == nil && c.plan.intrudes && !bytes.Contains(raw, []byte(c.name+" (pid")) {
			err = store.ErrNotFound
		}
		return content{raw, o}, err
	})
	c, _ := v.(content)
	return c.raw, c.object, err
}

// List sends.
func (l *link) List(ctx context.Context, prefix, cursor string) (store.Page, error) {
	if l.p.client.plan.intrudes {
		return store.Page{}, nil
	}
	v, err := l.send(ctx, &request{op: "list", key: prefix, cursor: cursor}, func() (any, error) {
		return l.w.mem.List(context.Background(), prefix, cursor)
	})
	page, _ := v.(store.Page)
	return page, err
}

// Delete sends.
func (l *link) Delete(ctx context.Context, key string) error {
	key = l.named(key)
	return l.delete(ctx, key, store.PutOptions{}, func() error { return l.w.mem.Delete(context.Background(), key) })
}

// DeleteIfMatch sends.
func (l *link) DeleteIfMatch(ctx context.Context, key, etag string) error {
	return l.delete(ctx, key, store.PutOptions{IfMatch: etag}, func() error {
		if l.w.plan.refuses {
			return &store.Error{Op: "delete", Key: key, Err: store.ErrPrecondition}
		}
		return l.w.mem.DeleteIfMatch(context.Background(), key, etag)
	})
}

func (l *link) delete(ctx context.Context, key string, opts store.PutOptions, apply func() error) error {
	_, err := l.send(ctx, &request{op: "delete", key: key, opts: opts}, func() (any, error) {
		if l.p.client.plan.noDelete {
			return nil, &store.Error{Op: "delete", Key: key, Err: store.ErrPermission}
		}
		return nil, apply()
	})
	return err
}

// Properties are the store's, as the client's machine sees it.
func (l *link) Properties() store.Properties {
	return l.w.plan.properties(l.p.client.plan, l.w.mem.Properties())
}

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
	Pages      // a page of a listing has few objects, and other clients write between two pages
	Leftovers  // dead clients have left locks
	Break      // a break-lock runs
	Poor       // the store reports no time, rounds it, or has no clock
	Namespaces // processes of one machine have different clocks since boot
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
	Local   // the wall clock of one machine dates all objects
	Evict   // a client deletes the tickets of the waiters
	Unclock // no clock of the store shows whether a lock was passed
	Sealed  // other clients encrypt their bodies
	Fenced  // exclusive locks take fencing tokens
	Clone   // a machine is cloned while it runs
	Reaped  // many crashed holders have left flags, which are deleted by few requests
	Stepped // the store's clock is set while a lock is held
	Crowd   // up to a hundred clients want one lock

	Hints // as Skew to Namespaces: the store gives hints, which can be late, lost or false
	kinds
)

var kindNames = [kinds]string{
	"none", "lost", "unanswered", "late", "twice", "busy", "broken", "conflict", "slow", "outage", "pause", "suspend",
	"crash", "jump", "skew", "storejump", "gateways", "conditions", "nodelete", "pages", "leftovers", "break", "poor",
	"namespaces", "reboot",
	"freeze", "frozen", "creates", "refuses", "crawl", "duel", "foreign", "several", "brink", "local", "evict", "unclock",
	"sealed", "fenced", "clone", "reaped", "stepped", "crowd", "hints",
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

// ofRequests are the faults of single requests.
var ofRequests = []Kind{Lost, Unanswered, Late, Twice, Busy, Broken, Conflict, Slow, Pause, Suspend, Crash, Jump, Freeze}

// unheard are the faults after which the sender has no answer: it gets an error, or keeps waiting.
var unheard = []Kind{Lost, Outage, Late, Unanswered}

// mishap is the fault of one request. The zero value is an undisturbed request.
type mishap struct {
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
func (w *world) decide(c *client, r *request, d dice) *mishap {
	f := &mishap{dice: d}
	apart := time.Duration(1)
	if w.plan.latency < time.Millisecond {
		apart = 10 // the latency would be lost in them
	}
	f.there = w.plan.latency + d.of(1).within(w.plan.latency) + nanoseconds(d.of(2))/apart
	f.back = w.plan.latency/2 + d.of(3).within(w.plan.latency) + nanoseconds(d.of(4))/apart
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
		return &mishap{dice: d, there: f.there, back: f.back}
	}
	w.extend(f, c, kept)
	return f
}

// extend draws how long a fault lasts, and when it strikes. A request that is held up arrives
// after that time.
func (w *world) extend(f *mishap, c *client, kept time.Duration) {
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
