package sim

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/repolock/repolock/replock"
	"github.com/repolock/repolock/store/mem"
)

// monitor knows which client holds which lock, and checks at every request:
//
//   - exclusion: no lock is live while another client's exclusive lock is, unless a
//     break-lock has broken one of them;
//   - overdue: a lock's context ends at its deadline, or half a second after its
//     process woke;
//   - revived: a lock whose deadline has passed isn't live again;
//   - passed: no conflicting lock has passed a lock that is resumed;
//   - unbroken: a lock that was broken ends within a ttl, or within a look if the store answers, and isn't
//     resumed;
//   - overbroken: break-lock --stale removes no live lock, nor any break-lock one of another
//     name;
//   - lost, failed: if next to nothing goes wrong no lock is lost, and none is refused
//     unless it is held;
//   - unseen: then the lock.exclusive of a live lock, which is all that other clients look
//     at, hasn't expired by its holder's clock either;
//   - checked: neither Renew nor Check confirms a lock that isn't live, or that had been
//     broken before the call;
//   - litter: if nothing goes wrong, a step that was refused, or has released, leaves
//     nothing;
//   - unheld: a lock is refused as held only if a conflicting object was stored;
//   - kept: if nothing goes wrong, a lock that is certainly stale delays no acquirer;
//   - tardy: if nothing goes wrong, a release takes no longer than its requests;
//   - in vain: then no acquirer is refused for a lock whose holder had ended its work;
//   - idle: then a waiter is granted its lock soon after the way is free;
//   - beside: a lock of ours ends soon after one of another kind of client is let in beside
//     it;
//   - fence: the stored numbers grow; an exclusive lock has one that is stored as its own, and
//     larger than those of earlier locks; a resumed lock has that of its first;
//   - hang: every call returns;
//   - undead: a lock that is released while it is being resumed isn't resumed;
//   - belated: a client that hasn't been stopped sends no refresh after the deadline;
//   - unqueued: a waiter puts its ticket again after a client has deleted it;
//   - trespass: no client deletes another client's live lock.exclusive for a shared lock,
//     nor any lock.exclusive that it hasn't read;
//   - progress: of two acquirers that come at once, one gets in if one can;
//   - stuck, leftover: at the end, when all others are gone, one more acquirer gets in as
//     soon as the last lock has expired, and leaves nothing.
type monitor struct {
	all    []*holding
	active []*holding           // whose contexts might be live
	broken map[string]time.Time // when a break-lock removed an object
	owner  map[string]*client   // the client that wrote an object
	// undone are objects that a put has brought back which was under way when a
	// break-lock removed them.
	undone    map[string]bool
	queue     map[string]ticket // by its key
	seen      map[string]sighting
	present   map[string]presence
	turns     map[string]*client     // the holder of the lock.exclusive that the last answer about it has shown to a step
	looks     map[string][]time.Time // when each look was sent whose answer a step has had
	grants    map[string]time.Time   // when the lock of an id was granted
	over      map[string]time.Time   // when a step had no more use for its lock
	pointers  map[string]*pointer    // by their bodies
	ghosts    []ghost
	lives     map[string][]life // by its key
	fences    fences
	staleOnly bool   // the break-lock that is under way
	scope     string // with which the keys of its locks begin
}

// pointer is what a lock.exclusive says.
type pointer struct {
	ID      string    `json:"id"`
	Expires time.Time `json:"expires_at"`
}

// sighting is when the client sent its last request that saw an object, and the last listing that did.
type sighting struct{ handed, listed time.Time }

// applied tracks each request that was applied.
func (w *world) applied(p *process, r request, v any, err error) {
	if w.timeline.on {
		w.say(nil, "         | %s's %v is applied: %v", p.client.name, asked{r}, got{v, err})
	}
	w.result.Requests++
	if p := w.plan.store; r.opts.IfAbsent && p.IfAbsent != mem.Kept || r.opts.IfMatch != "" && p.IfMatch != mem.Kept {
		w.result.Faults[Conditions]++
	}
	if r.cursor != "" {
		w.result.Faults[Pages]++
	}
	if r.op == "delete" && err != nil {
		w.result.Faults[NoDelete]++
	}
	if r.writes() && err == nil {
		w.changed = time.Now()
		w.lived(p.client, r)
	}
	switch {
	case err != nil:
	case r.op == "list" || r.op == "get":
		s := sighting{r.handed, w.seen[p.client.name+" "+r.key].listed}
		if r.op == "list" {
			s.listed = r.handed
		}
		w.seen[p.client.name+" "+r.key] = s
	case r.op == "put":
		w.undo(p.client, r)
		w.straddle(p, r)
		w.counted(r)
		fallthrough
	case r.op == "delete":
		w.appears(p.client, r)
	}
	w.queued(p.client, r, err)
	w.checkQueue()
	w.check()
}

const (
	tick  = 500 * time.Millisecond // how soon after waking a process sees that time has passed
	grace = 20 * time.Millisecond
)

// check checks every rule that holds at any time.
func (w *world) check() {
	live := w.active[:0]
	for _, h := range w.active {
		if h.held() {
			live = append(live, h)
		}
	}
	w.active = live
	for i, h := range live {
		w.checkOne(h)
		for _, g := range live[:i] {
			if h.foreign() != g.foreign() && h.conflicts(g) {
				ours, theirs := h, g
				if h.foreign() {
					ours, theirs = g, h
				}
				w.alongside(ours, theirs)
			}
			if !h.conflicts(g) || h.foreign() || g.foreign() || !h.live() || !g.live() {
				continue
			}
			switch {
			case w.wasBroken(h) || w.wasBroken(g):
			case w.adrift(h, g) || w.adrift(g, h):
				first, second := h, g
				if g.began.Before(h.began) {
					first, second = g, h
				}
				if w.stood(first) && !w.stood(second) && w.adrift(second, first) { // it was let in by a flag that was stale
					first, second = second, first
				}
				if w.adrift(first, second) {
					if first.passers == nil {
						first.passers = map[*holding]bool{}
					}
					first.passers[second] = true
				}
			default:
				w.violate("exclusion", fmt.Sprintf("%v is live beside %v", h, g))
			}
		}
	}
}

// stood reports whether a lock's flag exists. A client that passes a lock deletes its flag.
func (w *world) stood(h *holding) bool {
	_, ok := w.present[h.lock.Key()]
	return ok
}

// checkSeen checks the object of an exclusive lock that other clients of the wire format see.
func (w *world) checkSeen(h *holding) {
	key := prefix(h.step.lock) + exclusive
	raw, _, err := w.mem.Get(context.Background(), key, 1<<20)
	if err != nil {
		return
	}
	b := w.pointers[string(raw)]
	if b == nil {
		b = &pointer{}
		_ = json.Unmarshal(raw, b)
		w.pointers[string(raw)] = b
	}
	if b.ID == h.lock.ID() && !b.Expires.After(h.p.client.machine.wall()) { // another id: a late delete or put of another client
		w.violate("unseen", fmt.Sprintf("%v is live, and its lock.exclusive says that it expired at %v", h, b.Expires))
	}
}

func (w *world) checkOne(h *holding) {
	if h.foreign() {
		return
	}
	if h.step.mode == replock.Exclusive && h.live() && w.plan.survivable() && w.config.Protocol == nil {
		w.checkSeen(h)
	}
	c := h.p.client
	if h.expired && h.live() {
		w.violate("revived", fmt.Sprintf("%v is live again after its deadline had passed", h))
	}
	for g := range h.passers {
		if h.live() && !h.straddled && !w.adrift(h, g) && !w.wasBroken(h) && !w.wasBroken(g) {
			w.violate("passed", fmt.Sprintf("%v goes on although %v was granted while its machine was paused", h, g))
		}
	}
	h.expired = c.clock.Elapsed() >= h.lock.Deadline()
	if over := c.clock.Elapsed() - h.lock.Deadline(); over > grace && c.clock.Woke(tick+grace) {
		w.violate("overdue", fmt.Sprintf("%v goes on %v after its deadline", h, over.Round(time.Millisecond)))
	}
	for _, o := range h.objects() {
		at, broken := w.broken[o]
		if !broken || w.undone[o] || !c.clock.Woke(tick+grace) {
			continue
		}
		if ago := time.Since(later(at, c.machine.lags().over)); ago > w.plan.blindFor(c) {
			w.violate("unbroken", fmt.Sprintf("%v goes on %v after it was broken", h, ago.Round(time.Millisecond)))
		}
	}
}

// handed follows each request that is handed to the link. It reports whether a break-lock is
// under way that must remove stale locks alone, with what the keys begin that it can remove, and
// whose lock.exclusive the sender has seen, with no other request to it since.
func (w *world) handed(p *process, r request) (staleOnly bool, scope string, saw *client) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if r.step != nil && isExclusive(r.key) {
		saw = w.turns[r.turn(p, r.key)]
		delete(w.turns, r.turn(p, r.key))
	}
	c := p.client
	if r.op != "put" || len(r.body) == 0 || c.plan.foreign || !c.clock.Woke(tick+grace) {
		return w.staleOnly, w.scope, saw
	}
	name := objectName(r.key, r.body)
	for _, h := range w.all {
		if o := h.objects(); h.p != p || name != o[0] && name != o[1] {
			continue
		}
		if over := c.clock.Elapsed() - h.lock.Deadline(); over > grace {
			w.violate("belated", fmt.Sprintf("%v is refreshed %v after its deadline", h, over.Round(time.Millisecond)))
		}
	}
	return w.staleOnly, w.scope, saw
}
