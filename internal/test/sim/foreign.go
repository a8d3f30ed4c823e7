package sim

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/repolock/repolock/internal/clock"
	"github.com/repolock/repolock/internal/test/cloudsticlock"
	"github.com/repolock/repolock/replock"
	"github.com/repolock/repolock/store"
)

// never is the deadline of a lock without one.
const never = time.Duration(math.MaxInt64)

var errNoResume = errors.New("knows no resuming")

// original is the wire format's own protocol, as it was first published. The names of its shared locks begin
// with prefix: a client may choose any name.
type original struct{ prefix string }

func (o original) Join(s store.Store, m Member) Participant {
	return &originalClient{cloudsticlock.Locker{Store: s, Clock: m.Clock, Holder: m.Name}, o.prefix}
}

type originalClient struct {
	cloudsticlock.Locker
	prefix string
}

func (c *originalClient) Lock(ctx context.Context, mode replock.Mode, operation string, _ time.Duration) (Held, error) {
	take := c.Shared
	if mode == replock.Exclusive {
		take = c.Exclusive
	}
	k, err := take(ctx, operation)
	if errors.Is(err, cloudsticlock.ErrHeld) {
		return nil, replock.ErrHeld
	}
	if err != nil {
		return nil, err
	}
	return originalLock{k, named(k.Key(), c.prefix)}, nil
}

func (c *originalClient) Break(ctx context.Context, _ bool) error {
	return c.Store.Delete(ctx, exclusiveKey)
}

type originalLock struct {
	*cloudsticlock.Lock
	key string
}

func (k originalLock) Key() string                        { return k.key }
func (originalLock) ID() string                           { return "" } // its bodies have none
func (originalLock) Context() context.Context             { return context.Background() }
func (originalLock) Deadline() time.Duration              { return never }
func (originalLock) Seen() clock.Reading                  { return clock.Reading{} }
func (originalLock) Refresh(context.Context) error        { return nil }
func (originalLock) Check(context.Context) error          { return nil }
func (originalLock) Resume(context.Context) (Held, error) { return nil, errNoResume }

// late is a prefix for names of shared locks, so that they sort after ours.
const late = "z"

func named(key, prefix string) string {
	return strings.Replace(key, "/lock.shared/", "/lock.shared/"+prefix, 1)
}

// beside returns what our clients know: whether clients of the original protocol take part.
func (p *plan) beside() replock.Beside {
	if p.has(func(c *clientPlan) bool { return c.foreign }) {
		return replock.BesideCloudstic
	}
	return replock.BesideNobody
}

// originals reports whether an acquirer can find out that there are clients of the original protocol, or were.
func (p *plan) originals() bool {
	return p.beside() != replock.BesideNobody || slices.ContainsFunc(p.leftovers, func(l leftover) bool { return l.foreign })
}

// foreignTTL is the ttl of its locks.
const foreignTTL = time.Minute

// foreignTimeout is the time after which it gives up a request, as an HTTP client does.
const foreignTimeout = 20 * time.Second

// presence is an object that has existed, without a gap, as one client's.
type presence struct {
	client         *client
	since, written time.Time
	before         time.Time // when it was written before that
	// first has the time of each of its bodies. A foreign client's body that is put again,
	// late, is the same version for a watcher.
	first  map[string]time.Time
	handed time.Time // when the last put was sent
}

// appears tracks which objects exist.
func (w *world) appears(c *client, r *request) {
	now := time.Now()
	if c.twins != nil && r.handed.Before(c.twins.part) {
		now = r.handed // both copies have sent it: see wrote
	}
	if c.plan.foreign { // it overwrites and removes leftovers
		w.ghosts = slices.DeleteFunc(w.ghosts, func(g ghost) bool { return g.key == r.key })
	}
	switch {
	case r.op == "delete" || len(r.body) == 0:
		delete(w.present, r.key)
	case w.present[r.key].client == c:
		p := w.present[r.key]
		if _, again := p.first[string(r.body)]; !again || !c.plan.foreign {
			p.first[string(r.body)] = now
		}
		p.before, p.written = p.written, p.first[string(r.body)]
		p.handed = r.handed
		w.present[r.key] = p
	default:
		w.present[r.key] = presence{client: c, since: now, written: now, handed: r.handed, first: map[string]time.Time{string(r.body): now}}
	}
}

// stands reports whether a foreign lock's object has existed since before a time, and was live
// all the time.
func (w *world) stands(c *client, key string, before time.Time) bool {
	p := w.present[key]
	return p.client == c && p.since.Before(before) && time.Since(p.writtenBefore(before)) < foreignTTL-time.Second
}

// writtenBefore returns when the object had last been written at a time.
func (p presence) writtenBefore(at time.Time) time.Time {
	if p.written.Before(at) {
		return p.written
	}
	return p.before
}

// beside checks, when a lock is granted, the locks of the other kind of client. Ours must
// yield to theirs that it could see, and, if nothing goes wrong, theirs to ours.
func (w *world) beside(h *holding) {
	for _, g := range w.active {
		if h.foreign() == g.foreign() || h == g || !h.conflicts(g) || !g.held() || w.wasBroken(g) {
			continue
		}
		switch {
		case g.foreign() && w.stands(g.p.client, g.lock.Key(), w.lookOf(h)):
			w.violate("exclusion", fmt.Sprintf("%v is granted beside %v, of another kind of client, which stood there when it looked", h, g))
		case h.foreign() && !h.p.client.plan.intrudes && w.plan.undisturbed() && g.live() && w.shown(g, h.asked) && w.plan.store.PageSize >= 1000 && w.plan.slow.rtt == 0:
			w.violate("exclusion", fmt.Sprintf("%v, of another kind of client, is granted beside %v", h, g))
		}
	}
}

// decided notes when a lock was granted. The call can return later: a waiter's ticket is deleted first.
func (w *world) decided(id string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.grants[id] = time.Now()
}

// lookOf returns when the look was sent that a lock rests on when it is granted. The holder's first look,
// which is sent at that moment, can have been answered before the call returns.
func (w *world) lookOf(h *holding) (look time.Time) {
	decided, ok := w.grants[h.lock.ID()]
	if !ok { // now
		decided = time.Now()
	}
	for _, sent := range w.looks[h.step.name] {
		if sent.Before(decided) {
			look = later(look, sent)
		}
	}
	return look
}

// shown reports whether the object of g that other clients read has existed since before this time and before
// g was granted. A third client with an earlier look can have overwritten it.
func (w *world) shown(g *holding, before time.Time) bool {
	key := g.lock.Key()
	if g.step.mode == replock.Exclusive {
		key = prefix(g.step.lock) + exclusive
	}
	p := w.present[key]
	return g.began.Before(before) && p.client == g.p.client && !p.since.After(g.began)
}

// trespass returns why a client must not remove another client's lock.exclusive. A live one of another kind of
// client must not be removed for a shared lock, which doesn't concern that key. No client may write or remove
// a file of another program. And no client may remove a
// body that its earlier look hasn't shown. (Without conditions, the delete can hit a body that was written
// after the look.)
func (w *world) trespass(p *process, r *request) (wrong string) {
	if slices.Contains(w.aliens, r.key) && r.op != "get" {
		return fmt.Sprintf("%s sends a %s of another program's file %s", p.client.name, r.op, r.key)
	}
	if r.step == nil || p.client.plan.foreign {
		return ""
	}
	if key, ok := r.looksAt(); ok {
		*r.shows = w.present[key].client
	}
	if !isExclusive(r.key) || r.op != "delete" && (r.op != "put" || len(r.body) > 0) {
		return ""
	}
	o, ok := w.present[r.key]
	switch {
	case !ok || o.client == nil || o.client == p.client:
	case o.client == p.client.other(): // both can have sent it before they parted, or one of them again
	case r.step.mode == replock.Shared && o.client.plan.foreign && time.Since(o.written) < foreignTTL-time.Second:
		return fmt.Sprintf("%s deletes the live lock.exclusive of %s for a shared lock", p.client.name, o.client.name)
	case r.step.mode == replock.Exclusive && r.saw != p.client && o.since.Before(r.handed):
		return fmt.Sprintf("%s deletes the lock.exclusive of %s, and hasn't seen its own there", p.client.name, o.client.name)
	}
	return ""
}

// looksAt returns the lock.exclusive that a request of a step shows: by a read, or by the first page
// of all locks.
func (r *request) looksAt() (key string, ok bool) {
	all := prefix(r.step.lock) + "lock."
	switch {
	case r.op == "get" && isExclusive(r.key):
		return r.key, true
	case r.op == "list" && r.key == all && r.cursor == "":
		return prefix(r.step.lock) + exclusive, true
	default:
		return "", false
	}
}

// turn names the requests of one step to a lock.exclusive: each deletion relies on the answer to the one
// before.
func (r *request) turn(p *process, key string) turn { return turn{p.client.name, r.step.name, key} }

type turn struct{ client, step, key string }

// answered tracks each request whose answer, an error or not, has reached its sender. Another request of the
// step can be under way: a holder's first look, while the ticket is deleted.
func (w *world) answered(p *process, r *request, err error) {
	if r.step == nil {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if key, ok := r.looksAt(); ok {
		w.turns[r.turn(p, key)] = *r.shows
		if r.op == "list" && err == nil {
			w.looks[r.step.name] = append(w.looks[r.step.name], r.handed)
		}
	}
}

// settles is how long a holder expects a foreign lock beside its own to be withdrawn.
const settles = 3 * time.Second

// undoubted reports whether all clocks that date locks are right.
func (p *plan) undoubted() bool {
	return p.spread == 0 && p.rates[Jump] == 0 && p.storeJump == 0 && !p.store.NoStoreClock && !p.local
}

// onFirstPage reports whether a look of this lock shows each foreign lock that conflicts with it. A look reads the first
// page, and their shared locks are the last (protocol.md, `watch`).
func (p *plan) onFirstPage(ours *holding) bool {
	return p.store.PageSize >= 1000 || ours.step.mode == replock.Shared
}

// alongside checks a lock of ours that is live beside a foreign one: a look must show that, and end ours. This
// holds if the foreign object has existed all the time, isn't expired, and all clocks that date the two are
// right.
func (w *world) alongside(ours, theirs *holding) {
	p := w.plan
	if ours.foreign() || !theirs.foreign() || !ours.conflicts(theirs) || !ours.live() || w.wasBroken(ours) || w.wasBroken(theirs) || !p.undoubted() || p.freezing() {
		return
	}
	if p.pair == nil && !p.onFirstPage(ours) {
		return
	}
	c, stands := ours.p.client, w.present[theirs.lock.Key()]
	if stands.client != theirs.p.client || time.Since(stands.written) >= foreignTTL-time.Second {
		return
	}
	window := lookInterval + settles + tick + 2*p.roundTrip()
	since := later(later(ours.began, stands.written), c.troubled())
	if ago := time.Since(since); ago > window && c.clock.Woke(window) {
		w.violate("beside", fmt.Sprintf("%v goes on for %v beside %v, of another kind of client", ours, ago.Round(time.Millisecond), theirs))
	}
}

// A client of the original protocol can encrypt the bodies of its locks. The engine reads no more of them than
// the first byte, so here only that byte is set.
const sealedByte = 0x01

func seal(body []byte) []byte { return append([]byte{sealedByte}, body...) }

// sealing is the store of a client that encrypts.
type sealing struct{ store.Store }

// Put encrypts.
func (s sealing) Put(ctx context.Context, key string, body []byte, opts store.PutOptions) (store.Object, error) {
	return s.Store.Put(ctx, key, seal(body), opts)
}

// Get decrypts, if need be: ours are plain.
func (s sealing) Get(ctx context.Context, key string, limit int64) ([]byte, store.Object, error) {
	raw, o, err := s.Store.Get(ctx, key, limit)
	if len(raw) > 0 && raw[0] == sealedByte {
		raw = raw[1:]
	}
	return raw, o, err
}

// sealedDead is the age at which the engine takes an encrypted body for dead, if both clocks show
// it. Before that only a watch for its whole ttl shows it.
const sealedDead = 27 * time.Hour

// stageSealed: the other clients, live and dead, encrypt their bodies.
func (p *plan) stageSealed(config *Config, d dice) {
	p.sealed = true
	if d.of(2).chance(.6) {
		p.stageForeign(config, d.of(3))
	}
	if config.has(Leftovers) && d.of(4).chance(.8) {
		p.leftovers = nil
		for n := range uint64(1 + d.of(5).below(2)) {
			d := d.of(6, n)
			l := drawLeftover(config, d.of(1))
			l.foreign, l.empty, l.skew, l.ttl = true, false, 0, foreignTTL
			l.age = pick(d.of(2), d.of(3).between(0, 2*foreignTTL), d.of(3).between(2*foreignTTL, sealedDead-2*time.Hour), d.of(3).between(sealedDead+2*time.Hour, 3*sealedDead))
			p.leftovers = append(p.leftovers, l)
		}
	}
	if config.has(Break) && d.of(7).chance(.3) {
		p.breaks = append(p.breaks, breaking{at: d.of(8).between(0, 2*foreignTTL), stale: d.of(9).chance(.8)})
	}
}

// sealedLeftover reports whether a leftover lock's body is encrypted.
func (p *plan) sealedLeftover(l leftover) bool { return p.sealed && l.foreign && !l.empty }

// dead reports whether a leftover lock is certainly stale from the beginning, by clocks that are
// right.
func (p *plan) dead(l leftover) bool {
	if p.sealedLeftover(l) {
		return l.age > sealedDead+time.Hour
	}
	return l.empty || l.skew == 0 && l.age > l.ttl+10*time.Second
}

// unripe checks that break-lock --stale leaves a lock that is encrypted, and that only a watch can
// show to be dead. Another lock can have taken its place.
func (w *world) unripe(r *request, raw []byte) {
	for _, g := range w.ghosts {
		if r.staleOnly && g.key == r.key && g.sealed && raw[0] == sealedByte {
			w.violate("overbroken", fmt.Sprintf("break-lock --stale breaks %s, whose body is encrypted and not known to be dead", w.name(r.key)))
		}
	}
}
