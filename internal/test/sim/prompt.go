package sim

import (
	"fmt"
	"strings"
	"time"

	"github.com/repolock/repolock/replock"
)

// answering reports whether the store answers all requests as it should, and no machine stands still.
func (p *plan) answering() bool {
	return p.rates == [kinds]float64{} && p.slow.then == 0 && !p.freezing() && len(p.reboots) == 0 &&
		!p.has(func(c *clientPlan) bool { return c.outage.to > 0 || c.brink.to > 0 })
}

// blindFor is how long a holder can go on after its lock was broken: until its next look, if that is
// answered, or until the lease ends.
func (p *plan) blindFor(c *client) time.Duration {
	if p.answering() {
		return lookInterval + tick + 2*p.roundTrip()
	}
	return c.plan.ttl + tick
}

// done notes that a step has no more use for its lock. The lock.exclusive of one that was lost stays until
// it expires.
func (w *world) done(h *holding) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if h.lock.Context().Err() == nil {
		w.over[h.step.name] = time.Now()
	}
}

// ending is how long it takes at most to look at a lock for the last time and to release it, or to get a
// free one: some six round trips, with small pages more, and roundTrip has slack.
func (p *plan) ending() time.Duration {
	if p.store.PageSize < 1000 {
		return 18 * p.roundTrip()
	}
	return 6 * p.roundTrip()
}

// prompt checks that a release takes no longer than its requests. A lock of another kind of client
// that has just come is looked at again.
func (w *world) prompt(h *holding) {
	over, held := w.over[h.step.name]
	if !held || w.config.Protocol != nil || h.foreign() || !w.plan.answering() || w.besideOthers(h) {
		return
	}
	if took := time.Since(over); took > w.plan.ending() {
		w.violate("tardy", fmt.Sprintf("the release of %v took %v", h, took.Round(time.Millisecond)))
	}
}

// besideOthers reports whether a lock of another kind of client was there while this one was held.
func (w *world) besideOthers(h *holding) bool {
	for _, g := range w.all {
		if g.foreign() && g.conflicts(h) && (!g.ended || w.over[g.step.name].After(h.began)) {
			return true
		}
	}
	return false
}

// unnoticed checks that a look at a lock, whose answer confirmed it, has seen each lock of another kind of
// client that stood beside it before.
func (w *world) unnoticed(h *holding, asked time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, g := range w.active {
		if w.config.Protocol == nil && g.foreign() && !h.foreign() && g.held() && g.conflicts(h) && w.plan.answering() && w.plan.undoubted() && w.stands(g.p.client, g.lock.Key(), asked) {
			w.violate("checked", fmt.Sprintf("%v was confirmed beside %v, of another kind of client", h, g))
		}
	}
}

// caused reports whether a scene has a reason for which the lock can be lost.
func (w *world) caused(h *holding) bool {
	for _, f := range w.plan.freezes {
		if f.long > h.p.client.plan.ttl/2 && w.machines[f.machine] == h.p.client.machine {
			return true
		}
	}
	return w.wasBroken(h) || w.besideOthers(h) || h.p.client.plan.outage.to > 0
}

// inTheWay returns when the last object was deleted that conflicts with a step, or now if one is there.
// Those of steps that had no more use for them by a time don't count, nor does what is dead.
func (w *world) inTheWay(c *client, s step, by time.Time) (last time.Time) {
	for key, lives := range w.lives {
		if !strings.HasPrefix(key, prefix(s.lock)+"lock.") || s.mode == replock.Shared && strings.Contains(key, "/lock.shared/") {
			continue
		}
		for _, l := range lives {
			over, ended := w.over[l.step]
			switch {
			case l.client == c && l.step == s.name, l.dead, ended && over.Before(by):
			case l.to.IsZero():
				return time.Now()
			default:
				last = later(last, l.to)
			}
		}
	}
	return last
}

// keptOutInVain checks a refusal: a lock was there by then that was still of use.
func (w *world) keptOutInVain(c *client, s step) {
	limit := time.Now().Add(-w.plan.ending())
	if w.config.Protocol == nil && !c.plan.foreign && w.plan.answering() && !w.plan.store.NoStoreClock && w.inTheWay(c, s, limit).Before(limit) {
		w.violate("in vain", fmt.Sprintf("%s didn't get its %v lock [%s] because of locks that had ended %v before, or more", c.name, s.mode, s.name, w.plan.ending()))
	}
}

// soon is how soon a waiter sees that the way is free, if it has just come.
const soon = time.Second

// idle checks that a waiter gets its lock soon after the way is free. One whose ticket was broken needs
// longer.
func (w *world) idle(h *holding) {
	if w.config.Protocol != nil || h.foreign() || !h.step.queues || w.plan.store.Markers || len(w.plan.breaks) > 0 || !w.plan.answering() {
		return
	}
	asked, now := h.asked, time.Now()
	free := later(w.inTheWay(h.p.client, h.step, time.Time{}), asked)
	if took, limit := now.Sub(free), soon+free.Sub(asked)/50+w.plan.ending(); took > limit {
		w.violate("idle", fmt.Sprintf("%v was granted %v after the way was free", h, took.Round(time.Millisecond)))
	}
}
