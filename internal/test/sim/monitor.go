package sim

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/repolock/repolock/replock"
	"github.com/repolock/repolock/store/memory"
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
//   - checked: neither Refresh nor Check confirms a lock that isn't live, or that had been
//     broken before the call;
//   - litter: if nothing goes wrong, a step that was refused, or has released, leaves
//     nothing;
//   - unheld: a lock is refused as held only if a conflicting object was stored;
//   - kept: if nothing goes wrong, a lock that is certainly stale delays no acquirer;
//   - tardy: if nothing goes wrong, a release takes no longer than its requests;
//   - in vain: then no acquirer is refused for a lock whose holder had ended its work;
//   - idle: then a waiter pauses for no longer than the specification promises, and is granted its lock after one such
//     pause once the way is free;
//   - stalled: then a waiter waits in vain only if another client held a lock;
//   - unreaped: a lock is granted only once each stale flag in its way is deleted;
//   - unresumed: in a pair a lost lock is resumed, unless another one was granted or it was broken;
//   - beside: a lock of ours ends soon after one of another kind of client is let in beside
//     it;
//   - fence: the stored numbers grow; an exclusive lock has one that is stored as its own, and
//     larger than those of earlier locks; a resumed lock has that of its first;
//   - cloned: of two copies of a machine, which hold one lock, one has lost it once it has looked
//     after the other has written;
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
	all       []*holding
	active    []*holding           // their contexts might be live
	following []*holding           // of a copy that has not parted yet
	broken    map[string]time.Time // when a break-lock removed an object
	owner     map[string]*client   // the client that wrote an object
	// undone are objects that a put has brought back which was under way when a
	// break-lock removed them.
	undone   map[string]bool
	queue    map[string]ticket // by its key
	seen     map[sighted]sighting
	present  map[string]presence
	turns    map[turn]*client       // the holder of the lock.exclusive that the last answer about it has shown to a step
	looks    map[string][]time.Time // when each answered look of a step was sent
	grants   map[string]time.Time   // when the lock of an id was granted
	over     map[string]time.Time   // when a step no longer needed its lock
	pointers map[string]*pointer    // by their bodies
	waiting  map[string]waiting     // by the names of the steps
	paces    map[string]*pace       // of the steps that wait, by their names
	ghosts   []ghost
	// aliens has the keys of other programs' files.
	aliens    []string
	lives     map[string][]life  // by its key
	stored    map[string]bool    // the keys of lives that last
	vacant    map[string]vacancy // by the names of the locks
	counts    map[string]uint64  // the last fencing token that is stored, by its key
	fences    map[string]uint64  // the numbers that exclusive locks have taken, by the key and the lock's id
	staleOnly bool               // the break-lock that is under way
	scope     string             // the prefix of its keys
}

// pointer is the body of a lock.exclusive.
type pointer struct {
	ID      string    `json:"id"`
	Expires time.Time `json:"expires_at"`
}

// sighting is when the client sent its last request that saw an object, and the last listing that did. wrote is when the
// object had last been written when that listing saw it.
type sighting struct{ handed, listed, wrote time.Time }

// sighted is the name of a client, or of its step, and the key that it has asked for.
type sighted struct{ name, key string }

// applied tracks each request that was applied.
func (w *world) applied(p *process, r *request, v any, err error) {
	if w.timeline.on {
		w.say(nil, "         | %s's %v is applied: %v", p.client.name, asked{r}, got{v, err})
	}
	w.result.Requests++
	if p := w.plan.store; r.opts.IfAbsent && p.IfAbsent != memory.Kept || r.opts.IfMatch != "" && p.IfMatch != memory.Kept {
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
		s := w.seen[sighted{p.client.name, r.key}]
		if s.handed = r.handed; r.op == "list" {
			s.listed, s.wrote = r.handed, w.present[r.key].written
		}
		w.seen[sighted{p.client.name, r.key}] = s
		if r.step != nil {
			w.seen[sighted{r.step.name, r.key}] = sighting{handed: r.handed}
		}
	case r.op == "put":
		w.undo(p.client, r)
		w.straddle(p, r)
		w.counted(r)
		fallthrough
	case r.op == "delete":
		w.appears(p.client, r)
	}
	w.queued(p.client, r, err)
	if err == nil {
		w.follows(p.client, r, v)
		w.vacates(r)
	}
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
			w.alongside(h, g)
			w.alongside(g, h)
			if !h.conflicts(g) || h.foreign() || g.foreign() || !h.live() || !g.live() {
				continue
			}
			switch {
			case w.twinned(h, g), w.wasBroken(h) || w.wasBroken(g):
			case w.adrift(h, g) || w.adrift(g, h):
				first, second := h, g
				if g.began.Before(h.began) {
					first, second = g, h
				}
				if w.stood(first) && !w.stood(second) && w.adrift(second, first) { // it was granted because a flag was stale
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
	if b.ID == h.lock.ID() && !b.Expires.After(h.p.client.machine.wall()) { // another id comes from a late delete or put of another client
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
	for _, o := range h.objects {
		at, broken := w.broken[o]
		if !broken || w.undone[o] || !c.clock.Woke(tick+grace) {
			continue
		}
		if ago := time.Since(later(at, c.machine.lags().over)); ago > w.plan.blindFor(c) {
			w.violate("unbroken", fmt.Sprintf("%v goes on %v after it was broken", h, ago.Round(time.Millisecond)))
		}
	}
}

// handed follows each request that is handed to the link. It returns whether a running break-lock must remove
// only stale locks, the prefix of the keys that it can remove, and the client whose lock.exclusive the sender
// has seen without another request since.
func (w *world) handed(p *process, r *request) (staleOnly bool, scope string, saw *client) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.sends(r)
	if r.step != nil && isExclusive(r.key) && (r.op != "put" || len(r.body) == 0) { // a refresh doesn't change what the step has seen
		saw = w.turns[r.turn(p, r.key)]
		delete(w.turns, r.turn(p, r.key))
	}
	c := p.client
	if r.op != "put" || len(r.body) == 0 || c.plan.foreign || !c.clock.Woke(tick+grace) {
		return w.staleOnly, w.scope, saw
	}
	name := ""
	for _, h := range w.all {
		if h.p != p {
			continue
		}
		if name == "" {
			name = objectName(r.key, r.body)
		}
		if !slices.Contains(h.objects[:], name) {
			continue
		}
		if over := c.clock.Elapsed() - h.lock.Deadline(); over > grace {
			w.violate("belated", fmt.Sprintf("%v is refreshed %v after its deadline", h, over.Round(time.Millisecond)))
		}
	}
	return w.staleOnly, w.scope, saw
}

// holding is a lock that was granted.
type holding struct {
	p    *process
	step step
	lock Held
	// objects of the lock, as the maps of the monitor name them.
	objects [2]string
	first   *holding // the lock before the resume
	asked   time.Time
	began   time.Time
	ended   bool // was released
	// stopped: the guard has stopped the protected command.
	stopped bool
	// paused: the hypervisor paused the machine during the acquire, so another client can have passed the flag.
	paused bool
	// passers were granted while the hypervisor paused its machine.
	passers map[*holding]bool
	// straddled: a put can have brought back objects that its passers have deleted.
	straddled bool
	// expired is set once its deadline has passed.
	expired bool
}

func (h *holding) String() string {
	return fmt.Sprintf("%s's %v lock [%s]", h.p.client.name, h.step.mode, h.step.name)
}

// held reports whether its holder, without a look at the clock, takes it for held.
func (h *holding) held() bool {
	return !h.ended && !h.p.gone() && h.lock.Context().Err() == nil
}

// live reports whether its holder can continue the protected work.
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

// origin returns the lock that this one was first resumed from.
func (h *holding) origin() *holding {
	for h.first != nil {
		h = h.first
	}
	return h
}

const (
	exclusive    = "lock.exclusive"
	exclusiveKey = replock.DefaultPrefix + exclusive
)

// nameOf returns the name of the lock that a key belongs to.
func nameOf(key string) string {
	name, named := strings.CutPrefix(key, replock.DefaultPrefix+"locks/")
	if !named {
		return ""
	}
	name, _, _ = strings.Cut(name, "/")
	return name
}

// prefix of a lock's keys, by its name.
func prefix(lock string) string {
	if lock == "" {
		return replock.DefaultPrefix
	}
	return replock.DefaultPrefix + "locks/" + lock + "/"
}

func isExclusive(key string) bool { return strings.HasSuffix(key, "/"+exclusive) }

// objectName returns a key. For lock.exclusive, which many clients write, it adds the id of
// the lock.
func objectName(key string, body []byte) string {
	if !isExclusive(key) {
		return key
	}
	return key + "#" + idOf(body)
}

// idOf returns the id in a lock's body. An id has no character that JSON escapes.
func idOf(body []byte) string {
	_, rest, _ := bytes.Cut(body, []byte(`"id":"`))
	id, _, _ := bytes.Cut(rest, []byte(`"`))
	return string(id)
}

// keyOf is the key of an object.
func keyOf(name string) string {
	key, _, _ := strings.Cut(name, "#")
	return key
}

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
	h.objects = [2]string{k.Key(), prefix(s.lock) + exclusive + "#" + k.ID()}
	h.paused = p.client.machine.lags().over.After(asked)
	if p.client.follows() {
		w.following = append(w.following, h)
		return h
	}
	for _, o := range h.objects {
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
		w.unreaped(h)
		w.outOfTurn(h)
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
		if !g.conflicts(h) || g.foreign() || g.began.Before(origin.began) || g.origin() == origin || g.p.client.other() == h.p.client { // see twinned
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

// lost tracks a lock whose context has ended without a release.
func (w *world) lost(h *holding) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if h.p.client.follows() {
		return
	}
	w.result.Lost++
	w.say(h.p.client, "=== has lost its lock")
	if (w.plan.survivable() || w.plan.judged() && !w.caused(h)) && w.config.Protocol == nil {
		w.violate("lost", fmt.Sprintf("%v was lost although next to nothing had gone wrong", h))
	}
}

// checked tracks the result of a Refresh or Check, with the time of the call.
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

// brokenKey reports whether a break-lock has removed anything under this key.
func (w *world) brokenKey(key string) bool {
	for o := range w.broken {
		if keyOf(o) == key {
			return true
		}
	}
	return false
}

// wasBroken reports whether a break-lock has removed one of a lock's objects. The objects of
// the lock that it was resumed from don't count any more.
func (m *monitor) wasBroken(h *holding) bool {
	for _, o := range h.objects {
		if _, ok := m.broken[o]; ok {
			return true
		}
	}
	return false
}

// stillBroken names an object of a lock that was broken by that time, and that no put has
// brought back.
func (m *monitor) stillBroken(h *holding, at time.Time) string {
	for _, o := range h.objects {
		if b, ok := m.broken[o]; ok && b.Before(at) && !m.undone[o] {
			return o
		}
	}
	return ""
}

// breaking notes the objects that a break-lock is about to remove.
func (w *world) breaking(p *process, r *request) {
	if p.client != w.janitor || !r.writes() || r.op == "put" && len(r.body) > 0 {
		return
	}
	raw, _, err := w.mem.Get(context.Background(), r.key, 1<<20)
	if err != nil || len(raw) == 0 { // released before
		return
	}
	w.strays(p, r)
	w.unripe(r, raw)
	o := objectName(r.key, raw)
	w.broken[o] = time.Now()
	for _, h := range w.active {
		if r.staleOnly && h.live() && !w.adrift(h, h) && h.lock.Key() == r.key && !w.overslept(h, r) && (!h.foreign() || w.stands(h.p.client, r.key, time.Now()) && w.stoodWhenListed(h.p.client, r.key)) {
			w.violate("overbroken", fmt.Sprintf("break-lock --stale breaks %v, which is live", h))
		}
	}
}

// stoodWhenListed reports whether the foreign lock at a key was live when the break-lock listed that key, just
// before its delete. An expired one can be refreshed in between, even several times if the delete arrives late: the
// delete has no condition, and a holder must have stopped by its expiry.
func (w *world) stoodWhenListed(c *client, key string) bool {
	s := w.seen[sighted{w.janitor.name, key}]
	return s.listed.IsZero() || w.present[key].client != c || s.listed.Sub(s.wrote) < foreignTTL-time.Second
}

// overslept reports whether a pause by the hypervisor can make a flag stale that a break-lock
// is about to remove, or could until a moment ago. Either the lock's machine was paused, and
// the flag was written before the end of the pause or after the last look of the break-lock.
// Or the machine of the break-lock was paused since then, which it can't notice.
func (w *world) overslept(h *holding, r *request) bool {
	lag, written := h.p.client.machine.lags(), w.present[r.key].written
	look, looked := w.seen[sighted{w.janitor.name, r.key}]
	if looked && w.janitor.machine.lags().over.After(look.handed) {
		return true
	}
	return lag.over.After(written) || looked && !lag.over.IsZero() && written.After(look.handed)
}

// undo notes an object that was broken while a put of it was under way, and that the put has brought back. For
// lock.exclusive a put of another lock of the same client counts, too, since a client recognizes all its ids.
func (w *world) undo(c *client, r *request) {
	w.owner[objectName(r.key, r.body)] = c
	for o, at := range w.broken {
		if keyOf(o) == r.key && w.owner[o] == c && w.underWay(c, r, at) {
			w.undone[o] = true
		}
	}
}

// underWay reports whether a put was under way at a time: it had been sent, or the look before
// it.
func (w *world) underWay(c *client, r *request, at time.Time) bool {
	if !r.handed.After(at) {
		return true
	}
	if !r.handed.Before(at.Add(c.plan.ttl / 3)) {
		return false
	}
	return !r.after.IsZero() && r.after.Before(at)
}

// lastLook returns when a client, or a step of it if that is known, sent its last look at a key that the store has
// carried out. Looks of another step tell this one nothing.
func (w *world) lastLook(c *client, s *step, key string) time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	name := c.name
	if s != nil {
		name = s.name
	}
	look := w.seen[sighted{name, key}].handed
	for _, lock := range w.locks {
		look = later(look, w.seen[sighted{name, prefix(lock) + "lock."}].handed)
	}
	return look
}
