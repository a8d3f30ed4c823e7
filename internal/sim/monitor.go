package sim

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/repolock/repolock/replock"
	"github.com/repolock/repolock/store/mem"
)

// monitor knows who holds what, and looks at every request whether that may be:
//
//   - exclusion: nobody's lock is live while another's exclusive one is, unless
//     one of them was broken by break-lock;
//   - overdue: a lock's context ends at its deadline, or half a second after its
//     process woke;
//   - revived: a lock whose deadline has passed isn't live again;
//   - passed: a lock that is resumed was not passed by a conflicting one;
//   - unbroken: a lock that was broken ends within a ttl, and isn't resumed;
//   - overbroken: break-lock --stale removes no lock that is live;
//   - lost, failed: where next to nothing goes wrong no lock is lost, and none refused
//     but for being held;
//   - unseen: nor has lock.exclusive, which is all that other clients look at, expired
//     by its holder's clock while the holder's lock is live;
//   - checked: neither Check nor Confirm confirms a lock that isn't live, or was
//     broken before;
//   - litter: where nothing goes wrong, who was refused or has released leaves
//     nothing;
//   - hang: every call returns;
//   - undead: a lock that is released while it is being resumed isn't resumed;
//   - belated: who hasn't been stopped sends no refresh after the deadline;
//   - unqueued: who waits puts a ticket again that somebody has deleted;
//   - trespass: nobody deletes another client's live lock.exclusive for a shared lock, nor
//     any without having looked whose it is;
//   - progress: of two who come at once, and of whom one could have the lock, one has it;
//   - stuck, leftover: at the end, when all others are gone, somebody alone gets
//     in as soon as the last lock has expired, and leaves nothing.
type monitor struct {
	all    []*holding
	active []*holding           // whose contexts may be live
	broken map[string]time.Time // when a break-lock removed an object
	owner  map[string]*client   // who wrote an object
	// undone are objects that a put has brought back which was under way when a
	// break-lock removed them.
	undone    map[string]bool
	queue     map[string]ticket // by its key
	seen      map[string]sighting
	present   map[string]presence
	turns     map[string]*client   // whose lock.exclusive the last answer about it has shown to a step
	looks     map[string]time.Time // when the last look of a step began
	ghosts    []ghost
	staleOnly bool // the break-lock that is under way
}

// ticket is what somebody has left who waits for the exclusive lock.
type ticket struct {
	client *client
	since  time.Time
	put    time.Time // the last time
	gone   time.Time // when somebody has deleted it
}

// sighting is when a client's request was sent which saw an object last.
type sighting struct{ handed time.Time }

// ghost is the holder of a lock that was left behind, who may be there until it
// expires.
type ghost struct {
	mode replock.Mode
	key  string
	till time.Time
}

// haunted looks whether a lock was granted beside a ghost's.
func (w *world) haunted(h *holding) {
	for _, g := range w.ghosts {
		if h.excludes(g.mode, "") && !h.foreign() && time.Now().Before(g.till) && !w.brokenKey(g.key) {
			w.violate("exclusion", fmt.Sprintf("%v is granted beside one that was left behind and hasn't expired: %s", h, w.name(g.key)))
		}
	}
}

// brokenKey reports whether a break-lock has removed anything of this key.
func (w *world) brokenKey(key string) bool {
	for o := range w.broken {
		if keyOf(o) == key {
			return true
		}
	}
	return false
}

// holding is a lock that was granted to somebody.
type holding struct {
	p     *process
	step  step
	lock  Held
	first *holding // the one that this one was resumed from, and that one …
	asked time.Time
	began time.Time
	ended bool // was released
	// stopped: what it protects is, by the guard.
	stopped bool
	// paused: the hypervisor paused its machine while it was taken, so that its flag may
	// have been passed by then.
	paused bool
	// passers were let in while its machine was paused by the hypervisor.
	passers map[*holding]bool
	// straddled: a put of it may have put back what its passers have deleted.
	straddled bool
	// expired is set once its deadline was seen to have passed.
	expired bool
}

func (h *holding) String() string {
	return fmt.Sprintf("%s's %v lock [%s]", h.p.client.name, h.step.mode, h.step.name)
}

// held reports whether its holder takes it for held, unless they look at the clock.
func (h *holding) held() bool {
	return !h.ended && !h.p.gone() && h.lock.Context().Err() == nil
}

// live reports whether who holds it may go on with what it protects.
func (h *holding) live() bool {
	return h.held() && !h.stopped && h.p.client.clock.Elapsed() < h.lock.Deadline()
}

// conflicts reports whether two locks exclude each other.
func (h *holding) conflicts(g *holding) bool { return h.excludes(g.step.mode, g.step.lock) }

func (h *holding) excludes(mode replock.Mode, lock string) bool {
	return h.step.lock == lock && (h.step.mode == replock.Exclusive || mode == replock.Exclusive)
}

// foreign reports whether its holder follows the original protocol.
func (h *holding) foreign() bool { return h.p.client.plan.foreign }

// origin is the lock that it was first, before it was resumed.
func (h *holding) origin() *holding {
	for h.first != nil {
		h = h.first
	}
	return h
}

// objects of a lock, as the maps below name them.
func (h *holding) objects() [2]string {
	return [2]string{h.lock.Key(), prefix(h.step.lock) + exclusive + "#" + h.lock.ID()}
}

const (
	exclusive    = "lock.exclusive"
	exclusiveKey = replock.DefaultPrefix + exclusive
)

// prefix of a lock's keys, by its name.
func prefix(lock string) string {
	if lock == "" {
		return replock.DefaultPrefix
	}
	return replock.DefaultPrefix + "locks/" + lock + "/"
}

func isExclusive(key string) bool { return strings.HasSuffix(key, "/"+exclusive) }

// objectName is a key; lock.exclusive, which is written by many, with the id of
// the lock that it is of.
func objectName(key string, body []byte) string {
	if !isExclusive(key) {
		return key
	}
	var b struct {
		ID string `json:"id"`
	}
	_ = json.Unmarshal(body, &b)
	return key + "#" + b.ID
}

// keyOf is the key of an object.
func keyOf(name string) string {
	key, _, _ := strings.Cut(name, "#")
	return key
}

// wasBroken reports whether a break-lock has removed one of a lock's objects. What
// becomes of the objects of that which it was resumed from doesn't matter any more.
func (m *monitor) wasBroken(h *holding) bool {
	for _, o := range h.objects() {
		if _, ok := m.broken[o]; ok {
			return true
		}
	}
	return false
}

// stillBroken names an object of a lock that was broken by then, and that no put has
// brought back.
func (m *monitor) stillBroken(h *holding, at time.Time) string {
	for _, o := range h.objects() {
		if b, ok := m.broken[o]; ok && b.Before(at) && !m.undone[o] {
			return o
		}
	}
	return ""
}

// breaking notes what a break-lock is about to remove.
func (w *world) breaking(p *process, r request) {
	if p.client != w.janitor || !r.writes() || r.op == "put" && len(r.body) > 0 {
		return
	}
	raw, _, err := w.mem.Get(context.Background(), r.key, 1<<20)
	if err != nil || len(raw) == 0 { // released before
		return
	}
	o := objectName(r.key, raw)
	w.broken[o] = time.Now()
	for _, h := range w.active {
		if r.staleOnly && h.live() && !w.adrift(h, h) && h.lock.Key() == r.key && !w.overslept(h, r) && (!h.foreign() || w.stands(h.p.client, r.key, time.Now())) {
			w.violate("overbroken", fmt.Sprintf("break-lock --stale breaks %v, which is live", h))
		}
	}
}

// overslept reports whether the hypervisor has paused a lock's machine so that its flag, which
// a break-lock is about to remove, may be stale, or was until a moment ago: it was written
// before the pause was over, or after the break-lock had looked at it for the last time. Or it
// is the machine of the break-lock that was paused since then, which nothing can tell it.
func (w *world) overslept(h *holding, r request) bool {
	lag, written := h.p.client.machine.lags(), w.present[r.key].written
	look, looked := w.seen[w.janitor.name+" "+r.key]
	if looked && w.janitor.machine.lags().over.After(look.handed) {
		return true
	}
	return lag.over.After(written) || looked && !lag.over.IsZero() && written.After(look.handed)
}

// applied is told of each request that was applied.
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
	}
	switch {
	case err != nil:
	case r.op == "list" || r.op == "get":
		w.seen[p.client.name+" "+r.key] = sighting{r.handed}
	case r.op == "put":
		w.undo(p.client, r)
		w.straddle(p, r)
		fallthrough
	case r.op == "delete":
		w.appears(p.client, r)
	}
	w.queued(p.client, r, err)
	w.checkQueue()
	w.check()
}

// queued follows who waits for the exclusive lock, by their tickets.
func (w *world) queued(c *client, r request, err error) {
	switch {
	case err != nil || !r.writes():
	case !bytes.Contains(r.body, []byte(`"state":"waiting"`)):
		if t, ok := w.queue[r.key]; ok && c == w.janitor {
			if t.gone.IsZero() {
				t.gone = time.Now()
			}
			w.queue[r.key] = t
			return
		}
		delete(w.queue, r.key)
	default:
		t := w.queue[r.key]
		t.gone = time.Time{}
		if t.client == nil {
			t.client, t.since = c, time.Now()
			w.result.Queued++
		}
		t.put = time.Now()
		w.queue[r.key] = t
	}
}

// checkQueue looks whether everybody's ticket is good who waits.
func (w *world) checkQueue() {
	for key, t := range w.queue {
		if ago := time.Since(t.gone); !t.gone.IsZero() {
			limit := unqueued
			if w.plan.store.PageSize < 1000 { // a poll reads no further than the first page with a live lock
				limit += t.client.plan.ttl / 2
			}
			if ago > limit && w.plan.scene == Evict && !w.calm.Load() {
				w.violate("unqueued", fmt.Sprintf("%s waits, and hasn't put %s again for %v", t.client.name, w.name(key), ago.Round(time.Millisecond)))
			}
			continue
		}
		if ago := time.Since(t.put); ago > t.client.plan.ttl && w.plan.store.PageSize >= 1000 && w.plan.undisturbed() && !w.plan.slow.near(t.client.plan.ttl) && !w.calm.Load() {
			w.violate("expired", fmt.Sprintf("%s waits, and hasn't refreshed %s for %v", t.client.name, w.name(key), ago.Round(time.Millisecond)))
		}
	}
}

// overtaken looks whether a lock was granted before another that was waited for
// already when it was asked for.
func (w *world) overtaken(h *holding, asked time.Time) {
	for key, t := range w.queue {
		if t.client != h.p.client && t.gone.IsZero() && strings.HasPrefix(key, prefix(h.step.lock)+"lock.") && t.since.Before(asked) && w.plan.undisturbed() {
			w.violate("overtaken", fmt.Sprintf("%v is granted before that of %s, who has waited for %v (%s)", h, t.client.name, time.Since(t.since), w.name(key)))
		}
	}
}

// undo notes what a put has brought back that was broken while it was under way: of
// lock.exclusive also what another lock of the same client has put there, since a
// client knows all its ids for its own.
func (w *world) undo(c *client, r request) {
	w.owner[objectName(r.key, r.body)] = c
	for o, at := range w.broken {
		if keyOf(o) == r.key && w.owner[o] == c && w.underWay(c, r, at) {
			w.undone[o] = true
		}
	}
}

// underWay reports whether a put was, at a time: it had been sent, or the look that it
// comes after.
func (w *world) underWay(c *client, r request, at time.Time) bool {
	if !r.handed.After(at) {
		return true
	}
	if !r.handed.Before(at.Add(c.plan.ttl / 3)) {
		return false
	}
	look := w.seen[c.name+" "+r.key].handed
	for _, lock := range w.locks() {
		look = later(look, w.seen[c.name+" "+prefix(lock)+"lock."].handed)
	}
	return !look.IsZero() && look.Before(at)
}

// begin notes a lock that was granted, or resumed, which was asked for then.
func (w *world) begin(p *process, s step, k Held, from *holding, asked time.Time) *holding {
	w.mu.Lock()
	defer w.mu.Unlock()
	h := &holding{p: p, step: s, lock: k, first: from, asked: asked, began: time.Now()}
	h.paused = p.client.machine.lags().over.After(asked)
	for _, o := range h.objects() {
		// Whoever was broken while they took it, and put it back before they
		// looked, isn't broken.
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
	} else {
		w.result.Resumed++
		w.say(p.client, "=== HOLDS the %v lock again [%s]", s.mode, s.name)
		w.passed(h)
		if o := w.stillBroken(from, asked); o != "" {
			w.violate("unbroken", fmt.Sprintf("%v was resumed although %s had been broken", h, w.name(keyOf(o))))
		}
	}
	w.all = append(w.all, h)
	w.haunted(h)
	w.beside(h)
	w.active = append(w.active, h)
	w.check()
	return h
}

// passed looks whether somebody was let in between a lock and its resumption.
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

// lost is told of a lock whose context ended without its being released.
func (w *world) lost(h *holding) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.result.Lost++
	w.say(h.p.client, "=== has lost its lock")
	if w.plan.survivable() && w.config.Protocol == nil {
		w.violate("lost", fmt.Sprintf("%v was lost although next to nothing had gone wrong", h))
	}
}

// checked is told of what Check or Confirm returned, which was asked then.
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

const (
	tick  = 500 * time.Millisecond // how soon after it woke a process sees that time has passed
	grace = 20 * time.Millisecond
)

// check looks at everything that must be so at any time.
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

// stood reports whether a lock's flag is there. Who passes one deletes it.
func (w *world) stood(h *holding) bool {
	_, ok := w.present[h.lock.Key()]
	return ok
}

// checkSeen looks at what other clients of the wire format see of an exclusive lock.
func (w *world) checkSeen(h *holding) {
	key := prefix(h.step.lock) + exclusive
	raw, _, err := w.mem.Get(context.Background(), key, 1<<20)
	if err != nil || objectName(key, raw) != h.objects()[1] {
		return // somebody's late delete or put
	}
	var b struct {
		Expires time.Time `json:"expires_at"`
	}
	if err := json.Unmarshal(raw, &b); err != nil || !b.Expires.After(h.p.client.machine.wall()) {
		w.violate("unseen", fmt.Sprintf("%v is live, and its lock.exclusive says that it expired at %v (%v)", h, b.Expires, err))
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
		if ago := time.Since(later(at, c.machine.lags().over)); ago > c.plan.ttl+tick {
			w.violate("unbroken", fmt.Sprintf("%v goes on %v after it was broken", h, ago.Round(time.Millisecond)))
		}
	}
}

// tidied looks whether a client that holds nothing has left anything.
func (w *world) tidied(c *client) {
	if !w.plan.undisturbed() || w.plan.scene == Brink || w.config.Protocol != nil || w.ctx.Err() != nil || w.plan.slow.rtt > 0 || c.plan.foreign || w.plan.scene == Several {
		return
	}
	for o, owner := range w.owner {
		key := keyOf(o)
		if owner != c || isExclusive(key) {
			continue
		}
		if _, _, err := w.mem.Get(context.Background(), key, 1<<20); err == nil {
			w.violate("litter", fmt.Sprintf("%s holds nothing, and has left %s", c.name, w.name(key)))
		}
	}
}

// unqueued is how soon who waits puts their ticket again: each poll sees whether it is there,
// and some attempts may be under way before it.
const unqueued = 40 * time.Second

// handed is told of each request when it is handed to the link. It says whether a
// break-lock is under way then that may remove only what is stale, and whose
// lock.exclusive its sender has seen there, with no other request to it since.
func (w *world) handed(p *process, r request) (staleOnly bool, saw *client) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if r.op == "list" && r.step != nil && r.key == prefix(r.step.lock)+"lock." && r.cursor == "" {
		w.looks[r.step.name] = r.handed
	}
	if r.step != nil && isExclusive(r.key) {
		saw = w.turns[r.turn(p)]
		delete(w.turns, r.turn(p))
	}
	c := p.client
	if r.op != "put" || len(r.body) == 0 || c.plan.foreign || !c.clock.Woke(tick+grace) {
		return w.staleOnly, saw
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
	return w.staleOnly, saw
}

// undead is told of a lock that was resumed although it was released meanwhile.
func (w *world) undead(h *holding, next Held) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.violate("undead", fmt.Sprintf("%v was resumed as %s although it had been released meanwhile", h, w.name(next.Key())))
}
