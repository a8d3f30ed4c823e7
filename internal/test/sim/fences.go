package sim

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/repolock/repolock/replock"
	"github.com/repolock/repolock/store/mem"
)

// fences are the numbers that exclusive locks have taken.
type fences struct {
	last  map[string]uint64 // that is stored, by its key
	taken map[string]uint64 // by the key and the lock's id
}

func isFence(key string) bool { return strings.HasSuffix(key, "/lock-fence") }

// counted tracks each number that is stored. Each must be larger than the one before.
func (w *world) counted(r request) {
	if !isFence(r.key) {
		return
	}
	var b struct {
		Fence uint64 `json:"fence"`
		ID    string `json:"id"`
	}
	if err := json.Unmarshal(r.body, &b); err != nil {
		w.violate("fence", fmt.Sprintf("%s is no fence: %v", r.key, err))
		return
	}
	f := &w.fences
	if f.last == nil {
		f.last, f.taken = map[string]uint64{}, map[string]uint64{}
	}
	if last := f.last[r.key]; b.Fence <= last {
		w.violate("fence", fmt.Sprintf("%s counts from %d to %d", w.name(r.key), last, b.Fence))
	}
	f.last[r.key], f.taken[r.key+"#"+b.ID] = b.Fence, b.Fence
}

// fence returns a lock's number, or 0.
func (h *holding) fence() uint64 {
	if k, ok := h.lock.(interface{ Fence() (uint64, bool) }); ok {
		n, _ := k.Fence()
		return n
	}
	return 0
}

// fit reports whether the store keeps what a fence needs, as the client knows from the beginning.
func (p *plan) fit(c *clientPlan) bool {
	s := p.store
	return s.IfAbsent == mem.Kept && s.IfMatch == mem.Kept && !s.IfMatchCreates && !p.refuses && !(p.local && c.machine != 0)
}

// unfenced reports whether a lock was refused because the store isn't fit for a fence.
func (p *plan) unfenced(c *clientPlan, err error) bool {
	return errors.Is(err, replock.ErrFence) && !p.fit(c)
}

// fenced checks the number of a lock that was granted or resumed.
func (w *world) fenced(h *holding) {
	if w.config.Protocol != nil {
		return
	}
	n := h.fence()
	if wants := h.step.fence && h.step.mode == replock.Exclusive && !h.foreign(); wants != (n != 0) {
		w.violate("fence", fmt.Sprintf("%v has the number %d (0 is none)", h, n))
	}
	switch {
	case n == 0:
		return
	case h.first != nil:
		if was := h.first.fence(); n != was {
			w.violate("fence", fmt.Sprintf("%v has the number %d, and had %d", h, n, was))
		}
		return
	case w.plan.store.IfAbsent != mem.Kept || w.plan.store.IfMatch >= mem.Ignored:
		w.violate("fence", fmt.Sprintf("%v has the number %d of a store that keeps no conditions", h, n))
	}
	key := prefix(h.step.lock) + "lock-fence"
	if w.fences.taken[key+"#"+h.lock.ID()] != n {
		w.violate("fence", fmt.Sprintf("%v has the number %d, which isn't stored as its own", h, n))
	}
	for _, g := range w.all {
		m := g.fence()
		if m < n || g.step.lock != h.step.lock {
			continue
		}
		// One that is granted late, because its machine was paused or it was broken, has the
		// number from before.
		late := !h.asked.After(g.began) && (h.paused || g.paused || w.wasBroken(h) || w.wasBroken(g))
		if m == n || !late {
			w.violate("fence", fmt.Sprintf("%v has the number %d, and the earlier %v has %d", h, n, g, m))
		}
	}
}

// stageFenced: exclusive locks with numbers, one after another, and requests that are late,
// repeated or not answered.
func (p *plan) stageFenced(config *Config, d dice) {
	if d.of(1).chance(.3) {
		p.quiet()
	}
	p.latency = min(p.latency, 80*time.Millisecond)
	if d.of(2).chance(.8) {
		p.store.IfAbsent, p.store.IfMatch, p.store.Versions = mem.Kept, mem.Kept, false
	}
	for _, k := range []Kind{Late, Twice, Unanswered} {
		if config.has(k) && !p.deceptive() && d.of(3, uint64(k)).chance(.6) {
			p.rates[k] = pick(d.of(4, uint64(k)), .02, .06)
		}
	}
	if config.has(Freeze) && p.storeJump == 0 && d.of(5).chance(.2) {
		p.rates[Freeze] = .01
	}
	for n := range p.clients {
		for i := range p.clients[n].steps {
			s, d := &p.clients[n].steps[i], d.of(6, uint64(n), uint64(i))
			s.fence = d.of(1).chance(.9)
			if d.of(2).chance(.7) {
				s.mode, s.hold = replock.Exclusive, d.of(3).within(p.clients[n].ttl)
			}
		}
	}
}
