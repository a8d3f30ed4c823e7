package sim

import (
	"context"
	"fmt"
	"time"

	"github.com/repolock/repolock/replock"
)

// ghost is the holder of a leftover lock. It counts as live until the lock expires.
type ghost struct {
	mode   replock.Mode
	lock   string
	key    string
	till   time.Time
	sealed bool // and has been left behind for less than sealedDead
}

// haunted checks that no lock was granted beside a ghost's.
func (w *world) haunted(h *holding) {
	for _, g := range w.ghosts {
		if h.excludes(g.mode, g.lock) && !h.foreign() && time.Now().Before(g.till) && !w.brokenKey(g.key) {
			w.violate("exclusion", fmt.Sprintf("%v is granted beside one that was left behind and hasn't expired: %s", h, w.name(g.key)))
		}
	}
}

// begin notes a lock that was granted, or resumed, with the time of the call.
func (w *world) begin(p *process, s step, k Held, from *holding, asked time.Time) *holding {
	w.mu.Lock()
	defer w.mu.Unlock()
	h := &holding{p: p, step: s, lock: k, first: from, asked: asked, began: time.Now()}
	h.paused = p.client.machine.lags().over.After(asked)
	for _, o := range h.objects() {
		// A lock that was broken while it was taken, and was put back before the
		// look, isn't broken.
		if raw, _, err := w.mem.Get(context.Background(), keyOf(o), 1<<20); err == nil && objectName(keyOf(o), raw) == o {
			delete(w.broken, o)
		}
	}
	if from == nil {
		w.result.Acquired++
		w.say(p.client, "=== HOLDS the %v lock [%s]", s.mode, s.name)
		if !h.foreign() {
			w.overtaken(h, asked)
		}
		w.detained(h)
		w.idle(h)
	} else {
		w.result.Resumed++
		w.say(p.client, "=== HOLDS the %v lock again [%s]", s.mode, s.name)
		w.passed(h)
		if o := w.stillBroken(from, asked); o != "" {
			w.violate("unbroken", fmt.Sprintf("%v was resumed although %s had been broken", h, w.name(keyOf(o))))
		}
	}
	w.fenced(h)
	w.all = append(w.all, h)
	w.haunted(h)
	w.beside(h)
	w.active = append(w.active, h)
	w.check()
	return h
}

// passed checks that no conflicting lock was granted between a lock and its resumption.
func (w *world) passed(h *holding) {
	origin := h.origin()
	for _, g := range w.all {
		if !g.conflicts(h) || g.foreign() || g.began.Before(origin.began) || g.origin() == origin {
			continue
		}
		broken := w.wasBroken(g) || g.paused || h.paused
		for o := h; o != nil; o = o.first {
			broken = broken || w.wasBroken(o) || o.passers[g] && (o.straddled || w.plan.timeless()) // see adrift
		}
		if !broken {
			w.violate("passed", fmt.Sprintf("%v was resumed although %v had been granted since", h, g))
		}
	}
}

// end notes that a lock is about to be released.
func (w *world) end(h *holding) {
	w.mu.Lock()
	defer w.mu.Unlock()
	h.ended = true
}

// lost tracks a lock whose context ended without a release.
func (w *world) lost(h *holding) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.result.Lost++
	w.say(h.p.client, "=== has lost its lock")
	if (w.plan.survivable() || w.plan.pair != nil && !w.caused(h)) && w.config.Protocol == nil {
		w.violate("lost", fmt.Sprintf("%v was lost although next to nothing had gone wrong", h))
	}
}

// checked tracks the result of a Renew or Check, with the time of the call.
func (w *world) checked(h *holding, asked time.Time, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if h.foreign() {
		return
	}
	if err == nil && h.lock.Context().Err() != nil && h.p.ctx.Err() == nil {
		w.violate("checked", fmt.Sprintf("%v was confirmed although it isn't held", h))
	}
	if o := w.stillBroken(h, asked); err == nil && o != "" && h.p.ctx.Err() == nil {
		w.violate("checked", fmt.Sprintf("%v was confirmed although %s had been broken", h, w.name(keyOf(o))))
	}
}

// undead tracks a lock that was resumed although it was released meanwhile.
func (w *world) undead(h *holding, next Held) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.violate("undead", fmt.Sprintf("%v was resumed as %s although it had been released meanwhile", h, w.name(next.Key())))
}
