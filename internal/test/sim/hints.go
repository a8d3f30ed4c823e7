package sim

import (
	"context"
	"errors"
	"time"

	"github.com/repolock/repolock/store"
)

// hinting is how the store hints at deletions, as store.Watcher permits. The zero value is a store without hints.
type hinting struct {
	on    bool
	fails float64       // how likely a watch fails to begin
	ends  float64       // how likely a watch gives no more hints after a while
	lost  float64       // how likely a deletion gives no hint
	late  float64       // how likely a hint is late, by up to mostLate
	stray time.Duration // how often a watch gives a hint without a deletion, or 0
}

const mostLate = 5 * time.Second

// hintShare is the share of histories whose store gives hints.
var hintShare = .25

// drawHints draws them after all else, and from dice of its own. So a history without hints is the same as before there
// were any.
func (p *plan) drawHints(config *Config, d dice) {
	if config.Protocol != nil || !config.has(Hints) || !d.of(1).chance(hintShare) {
		return
	}
	p.hints.on = true
	if d.of(2).chance(.3) { // each comes at once
		return
	}
	p.hints.fails = pick(d.of(3), 0, 0, .3)
	p.hints.ends = pick(d.of(4), 0, 0, .5)
	p.hints.lost = pick(d.of(5), 0, .1, .5, 1)
	p.hints.late = pick(d.of(6), 0, .1, .5)
	p.hints.stray = pick(d.of(7), 0, 0, 100*time.Millisecond, 2*time.Second)
}

// Watch passes on the hints of the store in memory, which gives each at once. A hint on its way can be overtaken by a
// later one.
func (l *link) Watch(ctx context.Context, prefix string) (<-chan struct{}, error) {
	h, c := &l.w.plan.hints, l.p.client
	s, _ := ctx.Value(forStep{}).(*step)
	if !h.on || s == nil || l.w.plan.local && c.machine != l.w.machines[0] { // the kernel doesn't see what other machines remove
		return nil, &store.Error{Op: "watch", Key: prefix, Err: errors.ErrUnsupported}
	}
	d := c.diverge(l.w.plan.dice.named("hint").named(s.operation()).of(uint64(time.Now().UnixNano())))
	if d.of(1).chance(h.fails) {
		l.w.trace(c, "watch: fails")
		return nil, &store.Error{Op: "watch", Key: prefix, Err: errBroken}
	}
	deletions, err := l.w.mem.Watch(ctx, prefix)
	if err != nil {
		return nil, err
	}
	l.w.trace(c, "watch: begins")
	w := &watch{link: l, step: s, hints: make(chan struct{}, 1)}
	l.w.watches(w)
	go w.run(ctx, deletions, d.of(2))
	return w.hints, nil
}

// watch is one Watch under way.
type watch struct {
	*link
	step  *step
	hints chan struct{}
}

// run draws what becomes of each hint of the store, and adds false ones.
func (w *watch) run(ctx context.Context, deletions <-chan struct{}, d dice) {
	h, mishaps := &w.w.plan.hints, uint64(0)
	var end, next <-chan time.Time
	if d.of(1).chance(h.ends) {
		end = time.After(d.of(2).within(w.p.client.plan.ttl) + nanoseconds(d.of(3)))
	}
	for {
		if h.stray > 0 && next == nil {
			mishaps++
			next = time.After(d.of(4, mishaps).between(h.stray/2, h.stray*3/2) + nanoseconds(d.of(5, mishaps)))
		}
		d := w.p.client.diverge(d.of(6, uint64(time.Now().UnixNano())))
		select {
		case <-ctx.Done():
			return
		case <-end:
			return
		case <-next:
			next = nil
			w.hint(ctx, "false hint", d)
		case <-deletions:
			d := w.p.client.diverge(d.of(7, uint64(time.Now().UnixNano())))
			delay := nanoseconds(d.of(1)) / 10 // otherwise all waiters would get it at the same time
			switch {
			case w.w.calm.Load():
			case d.of(2).chance(h.lost):
				continue
			case d.of(3).chance(h.late):
				delay += d.of(4).within(mostLate)
			}
			time.AfterFunc(delay, func() { w.hint(ctx, "hint", d.of(5)) })
		}
	}
}

// hint hands a hint to a client that runs.
func (w *watch) hint(ctx context.Context, what string, d dice) {
	w.p.client.clock.awake(d)
	if ctx.Err() != nil || w.p.gone() {
		return
	}
	w.w.trace(w.p.client, "gets a %s [%s]", what, w.step.name)
	w.w.hinted(w.step)
	select {
	case w.hints <- struct{}{}:
	default: // it has one
	}
}

// watches notes that a waiter has hints: then it reads only at a hint.
func (w *world) watches(one *watch) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if k := w.paces[one.step.name]; k != nil {
		k.hints = true
	}
}

// hinted notes a hint, which ends a waiter's pause.
func (w *world) hinted(s *step) {
	w.mu.Lock()
	defer w.mu.Unlock()
	k := w.paces[s.name]
	if k == nil || k.under > 0 || len(k.rests) == 0 {
		return
	}
	if r := &k.rests[len(k.rests)-1]; r.hint.IsZero() {
		r.hint = time.Now()
	}
}
