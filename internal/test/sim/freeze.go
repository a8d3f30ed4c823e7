package sim

import (
	"time"

	"github.com/repolock/repolock/internal/clock"
	"github.com/repolock/repolock/replock"
	"github.com/repolock/repolock/store/mem"
)

// freezing is the effect of a hypervisor's pauses on a machine.
type freezing struct {
	over    time.Time     // when the machine goes on after the last pause, or went on
	set     time.Time     // when its wall clock was last set right
	stepped time.Duration // by how much, in all
}

// freeze is a hypervisor's pause: nothing on the machine runs, and none of its clocks
// counts the time. If set isn't 0, the wall clock is set right so long after it.
func (w *world) freeze(m *machine, d, set time.Duration) {
	m.mu.Lock()
	m.frozen.Stop(d)
	m.lag.over = later(m.lag.over, time.Now().Add(d))
	m.mu.Unlock()
	for _, c := range m.clients {
		c.clock.Stop(d)
	}
	if set > 0 {
		time.AfterFunc(d+set, func() {
			if m.setRight() {
				w.trace(m.clients[0], "~~~ its wall clock is set right")
			}
		})
	}
}

// setRight steps the wall clock, as NTP does, unless the machine is paused again.
func (m *machine) setRight() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	missed, left := m.frozen.Stopped(m.booted)
	if left > 0 {
		return false
	}
	m.lag.set, m.lag.stepped = time.Now(), missed
	return true
}

func (m *machine) lags() freezing {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.lag
}

// hypervisor makes the planned pauses.
func (w *world) hypervisor() {
	for _, f := range w.plan.freezes {
		time.Sleep(time.Until(w.start.Add(f.at)))
		if w.ctx.Err() != nil {
			return
		}
		m := w.machines[f.machine]
		w.fired(Freeze)
		w.trace(m.clients[0], "~~~ its machine is paused by the hypervisor for %v", f.long.Round(time.Millisecond))
		w.freeze(m, f.long, f.set)
	}
}

// lookInterval is how often a holder looks at its own objects.
const lookInterval = replock.DefaultLook

// A machine can't know at once that its hypervisor has paused it. Its holder looks at its own
// objects every lookInterval. If the wall clock is set right, the guard sees at its next beat
// that the two clocks have parted.
const beat = 500 * time.Millisecond

// passing is how long a holder can go on beside another one that has deleted its flag just while it
// refreshed that: it pauses for 0.6 s at most, looks, reads a body, and lists its flag. With small
// pages it reads others first.
func (p *plan) passing() time.Duration {
	trips := 4
	if p.store.PageSize < 1000 {
		trips += 2 * len(p.clients)
	}
	return time.Second + time.Duration(trips)*p.roundTrip()
}

// adrift reports whether a lock can be live beside another one because its machine was paused
// by the hypervisor: until the machine goes on, and then until the next look is answered or
// the guard has noticed. The time counts from when the other holder was let in if that was
// after the look, which found the lock as it was. That happens on a store that doesn't return
// its time, or if the other's delete of the lock was decided before and arrives late. Without a
// fault a delete arrives so soon that the looks after the refresh find it.
func (w *world) adrift(h, other *holding) bool {
	c := h.p.client
	lag, now := c.machine.lags(), time.Now()
	if !lag.over.After(h.asked) { // the zero time, too
		return false
	}
	window := lookInterval + tick + w.plan.roundTrip()
	from := later(later(lag.over, h.began), c.troubled())
	switch {
	case now.Before(lag.over), h.straddled:
		return true
	case w.plan.timeless() && w.plan.store.IfMatch != mem.Kept:
		return true // a refresh that was under way has put the lock back, and nothing shows it
	case w.plan.timeless(), w.plan.rates != [kinds]float64{}:
		from = later(from, other.began)
		return now.Sub(from) <= window || !c.clock.Woke(window) // its process was stopped, too
	case lag.set.After(h.began) && !lag.set.Before(lag.over):
		return now.Sub(lag.set) <= beat+tick+grace
	default:
		return now.Sub(from) <= window || other.began.Sub(from) <= window+2*w.plan.roundTrip() && now.Sub(other.began) <= w.plan.passing()
	}
}

// straddle notes a put of a paused machine that puts back objects that others have deleted
// when they passed: one that was under way, or, if If-Match isn't kept and the store doesn't
// return its time, any whose look was before that.
func (w *world) straddle(p *process, r request) {
	lag := p.client.machine.lags()
	if lag.over.IsZero() || !w.plan.timeless() && !r.handed.Before(lag.over) {
		return
	}
	for _, h := range w.active {
		if h.p == p && (r.key == h.lock.Key() || r.key == keyOf(h.objects()[1])) {
			h.straddled = true
		}
	}
}

// troubled is the time until which a faulty request of the client is under way.
func (c *client) troubled() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ailing > 0 {
		return time.Now()
	}
	return c.trouble
}

// ail notes that a request is faulty, until the returned function is called.
func (c *client) ail() func() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ailing++
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.ailing--
		c.trouble = time.Now()
	}
}

// guard is the process beside a holder that stops the protected command when the clocks part,
// until a look has found the lock.
func (w *world) guard(h *holding) {
	c := h.p.client.clock
	for {
		<-c.After(beat)
		if !w.holds(h) {
			return
		}
		if parted := clock.Read(c).Parted(clock.Reading(h.lock.Seen())); parted != h.stopped {
			w.stop(h, parted)
		}
	}
}

func (w *world) holds(h *holding) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return h.held()
}

func (w *world) stop(h *holding, stopped bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	h.stopped = stopped
	w.say(h.p.client, "=== the guard: stopped %t", stopped)
}
