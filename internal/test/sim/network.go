package sim

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/repolock/repolock/store"
)

// link is one process's faulty network to the store.
type link struct {
	w *world
	p *process
}

// request is what is sent.
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
	scope           string    // with which the keys begin that a break-lock can remove
	saw             *client   // whose lock.exclusive the answer before it showed, to the same step
	shows           **client  // whose this one finds there
}

func (r request) conditional() bool { return r.opts.IfAbsent || r.opts.IfMatch != "" }
func (r request) writes() bool      { return r.op == "put" || r.op == "delete" || r.op == deleteAll }

// looks is the same for requests that can be sent at one time and differ in nothing that counts.
func (r request) looks() string {
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

// answer is the answer to a request.
type answer[T any] struct {
	v   T
	err error
}

// send takes a request that is one step to the store and its answer back.
func send[T any](ctx context.Context, l *link, r request, apply func() (T, error)) (T, error) {
	return sendSteps(ctx, l, r, func(r request, f fault) (T, error) { return atStore(l, r, f, apply) })
}

// sendSteps is send for a request whose steps call atStore.
func sendSteps[T any](ctx context.Context, l *link, r request, apply func(request, fault) (T, error)) (T, error) {
	var zero T
	if l.p.gone() {
		return zero, errGone
	}
	c := l.p.client
	r.handed, r.wall = time.Now(), c.machine.wall()
	r.step, _ = ctx.Value(forStep{}).(*step)
	r.shows = new(*client)
	r.staleOnly, r.scope, r.saw = l.w.handed(l.p, r)
	if r.op == "put" {
		r.after = l.w.lastLook(c, r.key)
	}
	l.w.flying.Add(1)
	defer l.w.flying.Add(-1)
	n := c.nth(r)
	d := l.w.plan.dice.named("request").of(uint64(c.number), uint64(n)).named(r.looks())
	time.Sleep(nanoseconds(d.of(24)) / 10) // requests that goroutines send at one time are sent one after another
	c.clock.awake(d.of(20))
	if l.p.gone() {
		return zero, errGone
	}
	f := l.w.decide(c, r, d)
	if f.kind != None {
		l.w.fired(f.kind)
		defer c.ail()()
	}
	if !f.after && l.strike(f) {
		c.clock.awake(d.of(21))
		if l.p.gone() {
			return zero, errGone
		}
	}
	l.w.trace(c, "%v", said{r, f})
	answered := make(chan answer[T], 1)
	l.w.flying.Add(1)
	go func() {
		defer l.w.flying.Add(-1)
		travel(l, r, f, answered, apply)
	}()
	return await(ctx, l, r, f, answered)
}

// await waits for the answer to a request, until its context ends.
func await[T any](ctx context.Context, l *link, r request, f fault, answered <-chan answer[T]) (T, error) {
	var zero T
	c := l.p.client
	var late <-chan time.Time
	if deadline, ok := ctx.Deadline(); ok {
		// A moment before the context ends: another waiter for it mustn't be woken
		// at the same time.
		timer := time.NewTimer(time.Until(deadline) - nanoseconds(f.dice.of(10)) - 1)
		defer timer.Stop()
		late = timer.C
	}
	select {
	case a := <-answered:
		if l.p.gone() {
			return zero, errGone
		}
		l.w.answered(l.p, r, a.err)
		l.w.trace(c, "%v: %v", asked{r}, got{a.v, a.err})
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
			l.w.trace(c, "%v: %v, late", asked{r}, got{a.v, a.err})
			return a.v, a.err
		}
	default:
	}
	if l.p.gone() {
		return zero, errGone
	}
	l.w.trace(c, "%v: no answer", asked{r})
	if ctx.Err() != nil {
		return zero, ctx.Err()
	}
	return zero, context.DeadlineExceeded
}

// strike applies a request's fault to its sender.
func (l *link) strike(f fault) bool {
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

// travel is the way of a request to the store, and of the answer back.
func travel[T any](l *link, r request, f fault, answered chan<- answer[T], apply func(request, fault) (T, error)) {
	var zero T
	time.Sleep(f.there)
	switch f.kind {
	case Lost, Outage:
		reply(l, f, answered, zero, errReset)
	case Busy:
		reply(l, f, answered, zero, errBusy)
	case Conflict:
		reply(l, f, answered, zero, errConflict)
	case Late:
		reply(l, f, answered, zero, errReset)
		time.Sleep(f.long)
		apply(r, f)
	case Unanswered:
		apply(r, f)
		reply(l, f, answered, zero, errReset)
	case Broken:
		apply(r, f)
		reply(l, f, answered, zero, errBroken)
	case Twice:
		v, err := apply(r, f)
		reply(l, f, answered, v, err)
		time.Sleep(f.long)
		apply(r, f)
	default:
		v, err := apply(r, f)
		reply(l, f, answered, v, err)
	}
}

// reply brings the answer to a running process, unless the fault leaves its sender waiting.
func reply[T any](l *link, f fault, answered chan<- answer[T], v T, err error) {
	if f.hang {
		return
	}
	time.Sleep(f.back)
	l.p.client.clock.awake(f.dice.of(22))
	if f.after && l.strike(f) {
		l.p.client.clock.awake(f.dice.of(23))
	}
	answered <- answer[T]{v, err}
}

// atStore applies a request, as one step.
func atStore[T any](l *link, r request, f fault, apply func() (T, error)) (T, error) {
	w := l.w
	w.mu.Lock()
	defer w.mu.Unlock()
	w.sender, w.sent, w.stamp = l.p.client, f.dice, r.wall
	w.breaking(l.p, r)
	wrong := w.trespass(l.p, r)
	v, err := apply()
	if wrong != "" && err == nil {
		w.violate("trespass", wrong)
	}
	w.applied(l.p, r, v, err)
	return v, err
}

// Put sends.
func (l *link) Put(ctx context.Context, key string, body []byte, opts store.PutOptions) (store.Object, error) {
	r := request{op: "put", key: key, body: body, opts: opts}
	return send(ctx, l, r, func() (store.Object, error) {
		if l.w.plan.refuses && opts.IfMatch != "" {
			return store.Object{}, &store.Error{Op: "put", Key: key, Err: store.ErrPrecondition}
		}
		return l.w.mem.Put(context.Background(), key, body, opts)
	})
}

// forStep is the key of a context's value: the step that a request is sent for.
type forStep struct{}

// content is what a Get gives.
type content struct {
	raw    []byte
	object store.Object
}

// Get sends.
func (l *link) Get(ctx context.Context, key string, limit int64) ([]byte, store.Object, error) {
	c, err := send(ctx, l, request{op: "get", key: key}, func() (content, error) {
		raw, o, err := l.w.mem.Get(context.Background(), key, limit)
		return content{raw, o}, err
	})
	return c.raw, c.object, err
}

// List sends.
func (l *link) List(ctx context.Context, prefix, cursor string) (store.Page, error) {
	return send(ctx, l, request{op: "list", key: prefix, cursor: cursor}, func() (store.Page, error) {
		return l.w.mem.List(context.Background(), prefix, cursor)
	})
}

// Delete sends.
func (l *link) Delete(ctx context.Context, key string) error {
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
	_, err := send(ctx, l, request{op: "delete", key: key, opts: opts}, func() (struct{}, error) {
		if l.p.client.plan.noDelete {
			return struct{}{}, &store.Error{Op: "delete", Key: key, Err: store.ErrPermission}
		}
		return struct{}{}, apply()
	})
	return err
}

// Properties are the store's, as the client's machine sees it.
func (l *link) Properties() store.Properties {
	return l.w.plan.properties(l.p.client.plan, l.w.mem.Properties())
}
