package sim

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/repolock/repolock/replock"
	"github.com/repolock/repolock/store"
	"github.com/repolock/repolock/store/memory"
)

// life is a time in which an object of a lock was stored.
type life struct {
	client *client
	step   string    // that the client put it for; none of a leftover
	handed time.Time // when that put was sent
	to     time.Time // when it was deleted, emptied or replaced by another step; zero until then
	by     *client   // that did so
	dead   bool      // it was certainly stale from the beginning
	waits  bool      // it was a ticket
}

// lives tracks when the objects of locks were stored, by their keys.
func (w *world) lived(c *client, r *request) {
	if !isLock(r.key) {
		return
	}
	step := ""
	if r.step != nil {
		step = r.step.name
	}
	all := w.lives[r.key]
	if n := len(all) - 1; n >= 0 && all[n].to.IsZero() {
		if last := all[n]; r.op == "put" && len(r.body) > 0 && last.client == c && last.step == step {
			return
		}
		all[n].to, all[n].by = time.Now(), c
	}
	delete(w.stored, r.key)
	if r.op == "put" && len(r.body) > 0 {
		w.lives[r.key] = append(all, life{client: c, step: step, handed: r.handed, waits: isTicket(r.body)})
		w.stored[r.key] = true
	}
}

// isTicket reports whether a body is a ticket's.
func isTicket(body []byte) bool { return bytes.Contains(body, []byte(`"state":"waiting"`)) }

// isLock reports whether a key belongs to a lock.
func isLock(key string) bool {
	return strings.Contains(key, "/lock.exclusive") || strings.Contains(key, "/lock.intent/") || strings.Contains(key, "/lock.shared/")
}

// hindered reports whether an object can have kept a step from its lock since it asked: a conflicting object
// of another client or step, or an older one of its own. Dead ones count if dead is set, since an acquirer
// might have thought them live.
func (w *world) hindered(c *client, s step, asked time.Time, dead bool) bool {
	for key, lives := range w.lives {
		if !s.meets(key) {
			continue
		}
		for _, l := range lives {
			own := l.client == c && l.step == s.name && !l.handed.Before(asked)
			if !own && (l.to.IsZero() || !l.to.Before(asked)) && (dead || !l.dead) {
				return true
			}
		}
	}
	return false
}

// keptOut checks that a conflicting object was stored when a lock was refused. It can be the step's own
// lock.exclusive, or the flag of an earlier attempt, if its put had no answer and it couldn't be read then.
func (w *world) keptOut(c *client, s step, asked time.Time, err error) {
	held, _ := errors.AsType[*replock.HeldError](err)
	unread := held != nil && slices.ContainsFunc(held.Holders, func(i replock.Info) bool {
		return i.Holder == "" && i.Why != "" && (isExclusive(i.Key()) || w.present[i.Key()].client == c)
	})
	if w.config.Protocol == nil && !c.plan.foreign && !unread && !w.hindered(c, s, asked, !w.plan.undisturbed() || w.plan.timeless()) {
		w.violate("unheld", fmt.Sprintf("%s didn't get its %v lock [%s] because it is held, and nothing was stored that conflicts with it", c.name, s.mode, s.name))
	}
}

// patience is for how long a lock that is certainly stale can hinder an acquirer if nothing goes
// wrong.
const patience = 30 * time.Second

// detained checks that dead locks alone haven't delayed a lock that was granted.
func (w *world) detained(h *holding) {
	if w.config.Protocol != nil || h.foreign() || !w.plan.undisturbed() || w.plan.store.NoStoreClock || w.plan.slow.rtt > 0 {
		return
	}
	if took := time.Since(h.asked); took > patience && !w.hindered(h.p.client, h.step, h.asked, false) {
		w.violate("kept", fmt.Sprintf("%v was granted after %v, and nothing was in its way but what was dead", h, took.Round(time.Millisecond)))
	}
}

// tidied checks that a step that holds nothing has left nothing.
func (w *world) tidied(c *client, s step) {
	if !w.plan.undisturbed() || w.plan.scene == Brink || w.config.Protocol != nil || w.ctx.Err() != nil || w.plan.slow.rtt > 0 || c.plan.foreign {
		return
	}
	for key, lives := range w.lives {
		last := lives[len(lives)-1]
		if last.client == c && last.step == s.name && last.to.IsZero() && !isExclusive(key) {
			w.violate("litter", fmt.Sprintf("%s holds nothing [%s], and has left %s", c.name, s.name, w.name(key)))
		}
	}
}

// ticket is a waiter's place in the queue.
type ticket struct {
	client *client
	shared bool
	since  time.Time
	put    time.Time // the last time
	gone   time.Time // when a client has deleted it
}

// queued tracks the waiters, by their tickets.
func (w *world) queued(c *client, r *request, err error) {
	switch {
	case err != nil || !r.writes():
	case !isTicket(r.body):
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
			t.client, t.since, t.shared = c, time.Now(), strings.Contains(r.key, "lock.shared/")
			w.result.Queued++
		}
		t.put = time.Now()
		w.queue[r.key] = t
	}
}

// checkQueue checks the ticket of every waiter.
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

// overtaken checks that a lock wasn't granted before a client that was already waiting.
func (w *world) overtaken(h *holding, asked time.Time) {
	for key, t := range w.queue {
		if t.shared && h.step.mode == replock.Shared {
			continue // they hold it together
		}
		if t.client != h.p.client && t.gone.IsZero() && strings.HasPrefix(key, prefix(h.step.lock)+"lock.") && t.since.Before(asked) && w.plan.undisturbed() {
			w.violate("overtaken", fmt.Sprintf("%v is granted before that of %s, who has waited for %v (%s)", h, t.client.name, time.Since(t.since), w.name(key)))
		}
	}
}

// unqueued is how soon a waiter puts its ticket again: each poll shows whether it exists, and
// some attempts can be under way before it.
const unqueued = 40 * time.Second

// answering reports whether the store answers all requests as it should, and no machine stands still.
func (p *plan) answering() bool { return p.steady() && !p.freezing() }

// steady reports whether the store answers all requests as it should.
func (p *plan) steady() bool {
	return p.rates == [kinds]float64{} && p.slow.then == 0 && len(p.reboots) == 0 &&
		!p.has(func(c *clientPlan) bool { return c.outage.to > 0 || c.brink.to > 0 })
}

// blindFor is how long a holder can go on after its lock was broken: until its next look, if that is
// answered, or until the lease ends.
func (p *plan) blindFor(c *client) time.Duration {
	if p.answering() || p.clone != nil && p.steady() {
		return lookInterval + tick + 2*p.roundTrip()
	}
	return c.plan.ttl + tick
}

// done notes that a step no longer needs its lock. The lock.exclusive of a lost lock stays until it expires.
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

// prompt checks that a release takes no longer than its requests. A foreign lock that was just written is
// looked at again.
func (w *world) prompt(h *holding) {
	over, held := w.over[h.step.name]
	if !held || w.config.Protocol != nil || h.foreign() || !w.plan.answering() || w.besideOthers(h) {
		return
	}
	if took := time.Since(over); took > w.plan.ending() {
		w.violate("tardy", fmt.Sprintf("the release of %v took %v", h, took.Round(time.Millisecond)))
	}
}

// besideOthers reports whether a foreign lock existed while this one was held.
func (w *world) besideOthers(h *holding) bool {
	for _, g := range w.all {
		if g.foreign() && g.conflicts(h) && (!g.ended || w.over[g.step.name].After(h.began)) {
			return true
		}
	}
	return false
}

// unnoticed checks that a look which confirmed a lock has shown each foreign lock that existed before it.
func (w *world) unnoticed(h *holding, asked time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, g := range w.active {
		if w.config.Protocol == nil && g.foreign() && !h.foreign() && w.plan.onFirstPage(h) && g.held() && g.conflicts(h) && w.plan.answering() && w.plan.undoubted() && w.stands(g.p.client, g.lock.Key(), asked) {
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
	return h.p.client.twins != nil || w.wasBroken(h) || w.besideOthers(h) || w.plan.scene == Stepped && h.straddled || h.p.client.plan.outage.covers(time.Since(w.start)) || w.plan.scene != Stepped && h.p.client.plan.outage.to > 0
}

// judged reports whether each loss and each resume that fails must have a cause.
func (p *plan) judged() bool { return p.pair != nil || p.scene == Stepped }

// meets reports whether an object at a key can be in the step's way.
func (s step) meets(key string) bool {
	return strings.HasPrefix(key, prefix(s.lock)+"lock.") && !(s.mode == replock.Shared && strings.Contains(key, "/lock.shared/"))
}

// unreaped checks that a granted lock has deleted each conflicting flag that was certainly stale.
func (w *world) unreaped(h *holding) {
	for key, lives := range w.lives {
		if last := lives[len(lives)-1]; w.config.Protocol == nil && !h.foreign() && h.step.meets(key) && !isExclusive(key) && last.dead && last.to.IsZero() {
			w.violate("unreaped", fmt.Sprintf("%v was granted, and hasn't deleted %s, which is stale", h, w.name(key)))
		}
	}
}

// emptied checks that locks which were all released have left nothing.
func (w *world) emptied() {
	w.mu.Lock()
	defer w.mu.Unlock()
	lost := map[*client]bool{} // which leave lock.exclusive to expire
	for _, h := range w.all {
		lost[h.p.client] = lost[h.p.client] || errors.Is(context.Cause(h.lock.Context()), replock.ErrLost)
	}
	for key, p := range w.present {
		if w.plan.pair != nil && w.plan.answering() && isLock(key) && !lost[p.client] && !p.client.plan.foreign && !p.client.plan.noDelete {
			w.violate("litter", fmt.Sprintf("all have ended, and %s has left %s", p.client.name, w.name(key)))
		}
	}
}

// stalled checks a waiter that has waited in vain: another client has held a lock until then, or a dead lock
// was stored. Otherwise the waiters wait for each other.
func (w *world) stalled(c *client, s step) {
	if w.plan.pair == nil || !s.queues || !w.plan.answering() {
		return
	}
	limit := time.Now().Add(-5*time.Second - 2*w.plan.ending())
	for _, g := range w.all {
		if over, ended := w.over[g.step.name]; g.excludes(s.mode, s.lock) && (!ended || over.After(limit)) {
			return
		}
	}
	for key, lives := range w.lives {
		if last := lives[len(lives)-1]; s.meets(key) && last.client == nil && (last.to.IsZero() || last.to.After(limit)) {
			return
		}
	}
	w.violate("stalled", fmt.Sprintf("%s has waited for its %v lock [%s], and no other client has held one for seconds", c.name, s.mode, s.name))
}

// outOfTurn checks, when a waiter gets its lock, that none waits that came well before it.
func (w *world) outOfTurn(h *holding) {
	if h.foreign() || w.plan.pair == nil || !w.plan.answering() || len(w.plan.breaks) > 0 || w.plan.spread != 0 {
		return
	}
	for name, other := range w.waiting {
		if name != h.step.name && h.excludes(other.mode, other.lock) && other.since.Before(h.asked.Add(-time.Second/2-w.plan.ending())) {
			w.violate("overtaken", fmt.Sprintf("%v is granted before the %v lock [%s], which was asked for %v before", h, other.mode, name, h.asked.Sub(other.since).Round(time.Millisecond)))
		}
	}
}

// waiting is a step that waits for its lock.
type waiting struct {
	step
	since time.Time
}

// waits notes that a step begins to wait, or has ended.
func (w *world) waits(s step, since time.Time, begins bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if delete(w.waiting, s.name); begins {
		w.waiting[s.name] = waiting{s, since}
		w.paces[s.name] = &pace{step: s, asked: since, since: since, reads: since, poll: leastPoll}
	}
}

// unresumed checks a lock that couldn't be resumed: another client has passed or broken it, an acquirer that then withdrew
// has reaped it, or a late refresh has put its flag back, so that its holder can't know (rule 30). If only the store's
// clock was set, no refresh is late.
func (w *world) unresumed(h *holding, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	late := strings.Contains(err.Error(), "late refresh")
	switch {
	case w.plan.scene == Stepped && (!late || h.straddled || w.plan.untold(h.p.client)): // or another client was faster
		return
	case w.plan.scene == Stepped:
	case w.plan.pair == nil || w.wasBroken(h) || w.plan.timeless() || w.plan.freezing() || late || w.reaped(h):
		return
	}
	for _, g := range w.all {
		if g.conflicts(h) && !g.began.Before(h.began) && g != h {
			return
		}
	}
	w.violate("unresumed", fmt.Sprintf("%v wasn't resumed, and no other lock was granted meanwhile: %v", h, err))
}

// reaped reports whether another client has deleted or replaced one of a lock's objects.
func (w *world) reaped(h *holding) bool {
	for _, o := range h.objects {
		for _, l := range w.lives[keyOf(o)] {
			if l.client == h.p.client && l.step == h.step.name && !l.to.IsZero() && l.by != h.p.client {
				return true
			}
		}
	}
	return false
}

// untold reports whether the client was cut off before a look can have shown the step of the store's clock. A store that
// returns no time shows the step by the mod time of the first refresh after it.
func (p *plan) untold(c *client) bool {
	return p.timeless() && c.plan.outage.from < p.storeJumpAt+c.plan.ttl/2+lookInterval+3*time.Second
}

// inTheWay returns when the last object that conflicts with a step was deleted, or now if one exists. Objects
// of steps that no longer needed them by this time don't count, nor do dead ones, unless the step had to watch
// those, nor do tickets behind the step's place in the queue, if it has one.
func (w *world) inTheWay(c *client, s step, by time.Time, place string) (last time.Time) {
	for key, lives := range w.lives {
		if !s.meets(key) {
			continue
		}
		for _, l := range lives {
			over, ended := w.over[l.step]
			switch {
			case l.waits && place != "" && path.Base(key) > place, l.client == c && l.step == s.name, l.dead && w.plan.undoubted(), ended && over.Before(by) && !l.client.stays():
			case l.to.IsZero():
				return time.Now()
			default:
				last = later(last, l.to)
			}
		}
	}
	return last
}

// stays reports whether a client's lock is left to expire: it neither deletes it nor empties it.
func (c *client) stays() bool { return c != nil && c.plan.foreign && c.plan.noDelete }

// keptOutInVain checks that a lock was refused because of a lock that its step still needed. A refresh can put
// a broken lock.exclusive back, which no step needs.
func (w *world) keptOutInVain(c *client, s step) {
	limit := time.Now().Add(-w.plan.ending())
	if w.config.Protocol == nil && len(w.plan.breaks) == 0 && !c.plan.foreign && w.plan.answering() && !w.plan.store.NoStoreClock && w.inTheWay(c, s, limit, "").Before(limit) {
		w.violate("in vain", fmt.Sprintf("%s didn't get its %v lock [%s] because of locks that had ended %v before, or more", c.name, s.mode, s.name, w.plan.ending()))
	}
}

// counted tracks each number that is stored. Each must be larger than the one before.
func (w *world) counted(r *request) {
	if !strings.HasSuffix(r.key, "/lock-fence") {
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
	if last := w.counts[r.key]; b.Fence <= last {
		w.violate("fence", fmt.Sprintf("%s counts from %d to %d", w.name(r.key), last, b.Fence))
	}
	w.counts[r.key], w.fences[r.key+"#"+b.ID] = b.Fence, b.Fence
}

// fence returns a lock's number, or 0.
func (h *holding) fence() uint64 {
	if k, ok := h.lock.(interface{ FencingToken() (uint64, bool) }); ok {
		n, _ := k.FencingToken()
		return n
	}
	return 0
}

// fit reports whether the store keeps the conditions that a fence needs, as the client knows from the
// beginning.
func (p *plan) fit(c *clientPlan) bool {
	s := p.store
	return s.IfAbsent == memory.Kept && s.IfMatch == memory.Kept && !s.IfMatchCreates && !s.Markers && !p.refuses && !(p.local && c.machine != 0)
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
	case w.plan.store.IfAbsent != memory.Kept || w.plan.store.IfMatch >= memory.Ignored:
		w.violate("fence", fmt.Sprintf("%v has the number %d of a store that keeps no conditions", h, n))
	}
	key := prefix(h.step.lock) + "lock-fence"
	if w.fences[key+"#"+h.lock.ID()] != n && h.p.client.other() == nil {
		w.violate("fence", fmt.Sprintf("%v has the number %d, which isn't stored as its own", h, n))
	}
	for _, g := range w.all {
		m := g.fence()
		if m < n || g.step.lock != h.step.lock {
			continue
		}
		// One that is granted late, because its machine was paused or it was broken, has the
		// number from before.
		if h.p.client.other() == g.p.client && g.p.client != nil {
			continue // a copy has the same number if it was taken before they parted
		}
		late := !h.asked.After(g.began) && (h.paused || g.paused || w.wasBroken(h) || w.wasBroken(g))
		if m == n || !late {
			w.violate("fence", fmt.Sprintf("%v has the number %d, and the earlier %v has %d", h, n, g, m))
		}
	}
}

// stageFenced: exclusive locks with numbers, one after another, and requests that are late,
// repeated or not answered.
func (p *plan) stageFenced(config *Config, d dice) {
	p.latency = min(p.latency, 80*time.Millisecond)
	if d.of(2).chance(.8) {
		p.store.IfAbsent, p.store.IfMatch, p.store.Versions = memory.Kept, memory.Kept, false
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

// leftover is a lock of a client that has gone.
type leftover struct {
	mode    replock.Mode
	lock    string // its name
	flag    bool   // as opposed to lock.exclusive
	age     time.Duration
	ttl     time.Duration
	skew    time.Duration // of its holder's wall clock
	foreign bool          // written by a client of the original protocol
	empty   bool          // released by a client without the right to delete
	here    bool          // its holder was a process of the first machine, since its last boot
}

// leave puts the leftover locks.
func (w *world) leave() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.plan.aliens {
		w.scatter()
	}
	for n, l := range w.plan.leftovers {
		w.result.Faults[Leftovers]++
		key, raw := w.inherited(n, l)
		w.past = l.age
		if _, err := w.mem.Put(context.Background(), key, raw, store.PutOptions{}); err != nil {
			panic(err)
		}
		w.past = 0
		delete(w.lives, key) // overwritten
		delete(w.stored, key)
		w.ghosts = slices.DeleteFunc(w.ghosts, func(g ghost) bool { return g.key == key })
		if !l.empty {
			w.lives[key], w.stored[key] = []life{{dead: w.plan.dead(l)}}, true
		}
		if till := w.haunts(l); till > 0 {
			w.ghosts = append(w.ghosts, ghost{l.mode, l.lock, key, w.start.Add(till), w.plan.sealedLeftover(l)})
		}
		w.say(nil, "left behind %v ago: %s%s", l.age.Round(time.Millisecond), strings.TrimPrefix(key, replock.DefaultPrefix),
			flags("encrypted", w.plan.sealedLeftover(l), "of this boot", l.here))
	}
}

// scatter puts files of other programs among the flags of each lock, before and behind them. No client knows them, so
// each deletion or overwriting of one is a violation of its own.
func (w *world) scatter() {
	for _, lock := range []string{"", "named", "other", "third"} {
		for _, folder := range []string{"lock.intent/", "lock.shared/"} {
			for _, name := range []string{"#recycle/20260307T090000.000000000Z-x", "._x", "@eaDir/x"} {
				key := prefix(lock) + folder + name
				if _, err := w.mem.Put(context.Background(), key, []byte{0, 5, 0x16, 7}, store.PutOptions{}); err != nil {
					panic(err)
				}
				w.aliens = append(w.aliens, key)
			}
		}
	}
}

// inherited returns the nth leftover lock's key and body.
func (w *world) inherited(n int, l leftover) (key string, raw []byte) {
	at := w.start.Add(l.skew - l.age)
	id := fmt.Sprintf("%032x", n+1)
	body := map[string]any{
		"operation": "leftover", "holder": "gone (pid 1)", "is_shared": l.mode == replock.Shared,
		"acquired_at": at.UTC().Format(time.RFC3339Nano), "expires_at": at.Add(l.ttl).UTC().Format(time.RFC3339Nano),
	}
	name := at.UTC().Format("20060102T150405.000000000Z") + "-" + id
	key = prefix(l.lock) + exclusive
	switch {
	case l.mode == replock.Shared && l.foreign:
		key = prefix(l.lock) + "lock.shared/" + at.UTC().Format(time.RFC3339Nano)
	case l.mode == replock.Shared:
		key = prefix(l.lock) + "lock.shared/" + name
	case l.flag && !l.foreign:
		key = prefix(l.lock) + "lock.intent/" + name
	}
	if !l.foreign {
		body["id"], body["ttl_seconds"], body["state"] = id, l.ttl.Seconds(), "held"
		body["refreshed_at"] = at.UTC().Format(time.RFC3339Nano)
	}
	if m := w.machines[0]; l.here {
		body["boot_id"], body["time_namespace"] = m.bootID(), namespace(0)
		body["refreshed_boot_ns"] = int64(m.uptime() - l.age)
	}
	raw, err := json.Marshal(body)
	switch {
	case err != nil:
		panic(err)
	case l.empty:
		return key, nil
	case w.plan.sealedLeftover(l):
		return key, seal(raw)
	}
	return key, raw
}

// haunts returns until when a leftover lock must be taken for held, from the beginning of the
// history, or 0. If both witnesses can be wrong about it, nothing is asserted.
func (w *world) haunts(l leftover) time.Duration {
	switch {
	case l.empty:
		return 0
	case w.plan.sealedLeftover(l) && l.age < sealedDead:
		return l.ttl // each acquirer must watch it for its ttl
	case w.plan.sealedLeftover(l):
		return 0
	case l.here && len(w.plan.reboots) > 0: // which its holder doesn't survive
		return min(w.plan.reboots[0].at, l.ttl-l.age-l.ttl/12)
	case w.plan.local && l.here, w.plan.storeJump == 0 && !w.plan.local && !w.plan.store.NoStoreClock:
		return l.ttl - l.age - l.ttl/12
	}
	return 0
}
