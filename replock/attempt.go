package replock

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
	"sync/atomic"
	"time"

	"github.com/repolock/repolock/internal/clock"
	"github.com/repolock/repolock/internal/fault"
	"github.com/repolock/repolock/replock/internal/verdict"
	"github.com/repolock/repolock/replock/internal/wire"
	"github.com/repolock/repolock/store"
)

// object is one of our lock objects, and what we know about its stored state.
type object struct {
	key  string
	etag string
	sent time.Duration // when the put of its present body was sent
	// twice: we sent a put of lock.exclusive more than once. So the store can apply the first send even after the object
	// was deleted.
	twice bool
	put   bool // a put of it was answered, and we don't know that it is gone
	maybe bool // we sent a put of it, so it can be stored now or later
	// answered: a put of lock.exclusive was answered, and no look has found the lock free since.
	answered bool
	renewed  bool // the present refresh has replaced it already
}

// attempt is one run of the protocol with one flag, from the flag's first put until the lock is held or the flag is
// withdrawn. A ticket is an attempt without a pointer. Puts and deletes change the attempt's own fields; looks change
// the embedded looks.
type attempt struct {
	mode      Mode
	operation string
	id        string
	body      wire.Body
	place     string          // orders the queue: tickets with a later place are behind us
	parent    context.Context // parent of the lock's context
	trips     *trips          // shared by the attempts of one acquire
	waits     bool            // the acquirer can wait
	queues    bool            // the acquirer can wait, and has no ticket yet
	ownAttempts

	sent        time.Duration // when the flag's first put was sent, which begins the lease
	deadline    time.Duration
	flag        object         // the truth about our lock: only we ever write its key
	pointer     object         // lock.exclusive
	raised      pageTime       // times of the answer to the flag's put
	underway    underway       // puts that the store hasn't answered yet
	refusals    int            // 412 responses to puts of the pointer since a listing last showed one
	leftPointer *verdict.Entry // another client's lock.exclusive, stale or released; a shared attempt doesn't delete it
	fence       uint64         // fencing token, or 0
	// stood is when the store answered the put of the object that original clients look at: the flag of a shared lock,
	// or the pointer of an exclusive one. It is a reading of Clock.Elapsed, or 0 without an answer.
	stood time.Duration
	looks
}

// looks has the facts that an attempt has learned from its looks.
type looks struct {
	polls       bool          // the looks are a waiter's polls, which never grant the lock
	looked      bool          // a look has begun
	seen        clock.Reading // when the last look was sent
	st          verdict.StoreTime
	dated       verdict.StoreTime // mod time of our flag, when we first saw it
	first, page pageTime          // times of the first page and of the last one
	listed      listed
	lasted      time.Duration // of the last page's request
	passes      int           // the most shared flags of others that a look has listed
	// pointerSeen is when we sent the last look that showed lock.exclusive as ours, by Clock.Elapsed. It is 0 if the
	// next request needs a new look.
	pointerSeen time.Duration
}

// listed reports which objects the last look listed: our flag, our lock.exclusive, another client's lock.exclusive. flags
// is the number of other clients' shared flags.
type listed struct {
	flag, pointer, another bool
	flags                  int
}

// stamped learns the store's time from the mod time of our flag. seen is Clock.Elapsed when a response showed that mod
// time.
func (s *looks) stamped(mod time.Time, seen time.Duration) {
	if !mod.Equal(s.dated.At) {
		// The store might have applied an earlier send of the put late. So we only know that the mod time is before
		// now.
		s.dated = verdict.StoreTime{At: mod, Elapsed: seen}
	}
	s.st = s.dated
}

// ownAttempts has the facts that all our attempts for one lock share: their ids, their flags' keys, and the bodies that
// we have sent.
type ownAttempts struct {
	ids, keys map[string]bool // also of attempts whose flags aren't stored
	ticket    string          // the ticket's key, or empty
	bodies    *sentBodies
}

func nothingYet() ownAttempts {
	return ownAttempts{ids: map[string]bool{}, keys: map[string]bool{}, bodies: &sentBodies{at: map[mark]time.Duration{}}}
}

func (l *Locker) newAttempt(mode Mode, operation string, m ownAttempts) (*attempt, error) {
	id, err := l.newID()
	if err != nil {
		return nil, err
	}
	now := l.opts.Clock.Now()
	key := l.keys.Intent(now, id)
	place := wire.Place(key)
	if mode == Shared {
		key, place = l.keys.SharedFlag(now, id), wire.LastPlace
	}
	m.ids, m.keys = maps.Clone(m.ids), maps.Clone(m.keys) // other goroutines can still read the old maps
	m.ids[id], m.keys[key] = true, true
	return &attempt{
		mode: mode, operation: operation, id: id,
		flag:        object{key: key},
		pointer:     object{key: l.keys.Exclusive()},
		place:       place,
		ownAttempts: m,
		trips:       new(trips),
		body: wire.Body{
			Operation: operation, Holder: l.self.Holder(), AcquiredAt: now.UTC().Format(wire.WireTime), IsShared: mode == Shared,
			ID: id, TTLSeconds: l.opts.TTL.Seconds(), State: wire.StateAcquiring,
			Process: l.self, Version: l.opts.Version, Metadata: l.opts.Metadata,
		},
	}, nil
}

// owns reports whether a listed object needs no read, because it is ours. proveFlag judges our present flag. The flags
// of earlier attempts and lock.exclusive are ours if they have the ETag of a put of ours. Otherwise sort reads them. Our
// ticket is ours by its key: copies of this process share it, because it locks nothing.
func (t *attempt) owns(o store.Object) bool {
	switch {
	case o.Key == t.pointer.key:
		return t.pointer.put && o.ETag != "" && o.ETag == t.pointer.etag
	case o.Key == t.flag.key || o.Key == t.ticket:
		return true
	case t.keys[o.Key]:
		_, ours := t.bodies.find(etagMark(o.Key, o.ETag))
		return o.ETag != "" && ours
	default:
		return false
	}
}

// wrote reports whether this process has sent the body that was read under a key.
func (t *attempt) wrote(key string, body []byte) bool {
	_, ours := t.bodies.find(bodyMark(key, body))
	return ours
}

// copied reports whether a body has one of our ids, although this process hasn't sent it.
func (t *attempt) copied(key string, body []byte) bool {
	l, err := wire.Decode(body)
	return err == nil && t.ids[l.ID] && !t.wrote(key, body)
}

// claimed records that the stored lock.exclusive is ours, with this ETag.
func (t *attempt) claimed(etag string) {
	t.pointer.put, t.pointer.maybe, t.pointer.answered = true, true, true
	t.pointer.etag, t.pointer.sent = etag, t.sent
}

// found records our lock.exclusive, if a look has shown it.
func (t *attempt) found(f verdict.Findings) {
	if f.Ours != nil {
		t.claimed(f.Ours.ETag)
	}
}

// date begins the lease now. The caller then puts the flag.
func (l *Locker) date(t *attempt) {
	t.sent = l.opts.Clock.Elapsed()
	t.deadline = t.sent + l.times.Deadline
	l.stamp(&t.body, t.st, t.sent)
}

// late returns errLate. It adds the reason if the store refused our puts of lock.exclusive without listing one.
func (t *attempt) late() error {
	if t.refusals == 0 || t.listed.another {
		return errLate
	}
	return fmt.Errorf("%w, and the store refused %d times to write %q with If-None-Match (412) although it listed no such object", errLate, t.refusals, t.pointer.key)
}

// stamp writes the present times into a body that is about to be sent. Clients of the original protocol compare
// expires_at with their own clocks. So expires_at counts from the later of this machine's wall clock and the store's
// clock, and is at least foreignTTL after the deadline of the lease.
func (l *Locker) stamp(b *wire.Body, st verdict.StoreTime, sent time.Duration) {
	now := l.opts.Clock.Now().UTC()
	lasts := max(l.opts.TTL, l.times.Deadline+wire.ForeignTTL)
	b.RefreshedAt, b.RefreshedBoot, b.Nonce = now.Format(wire.WireTime), int64(sent), l.nonce()
	b.ExpiresAt = now.Add(l.behind(st) + lasts).Format(wire.WireTime)
	if b.State == wire.StateWaiting && b.IsShared {
		b.ExpiresAt = time.Unix(0, 0).UTC().Format(wire.WireTime) // clients of the original protocol take it for expired
	}
}

// behind returns how far the wall clock is behind the store's clock, at least, or 0.
func (l *Locker) behind(st verdict.StoreTime) time.Duration {
	if !st.Known() || !l.store.Properties().StoreClock {
		return 0
	}
	return max(st.When(l.opts.Clock.Elapsed()).Sub(l.opts.Clock.Now()), 0)
}

// contender returns the facts that decide between this attempt and others that come at the same time. paused is the sum
// of the pauses between its looks.
func (t *attempt) contender(paused time.Duration) verdict.Contender {
	return verdict.Contender{Shared: t.mode == Shared, Flag: t.flag.key, Pointer: t.listed.pointer, Trip: t.trips.slowest(), Waits: t.waits, Queues: t.queues, Paused: paused}
}

// underway counts the puts of an attempt that the store hasn't answered yet. A put must not reach the store after the
// deletes of the withdrawal, so the withdrawal waits for these puts.
type underway struct {
	mu     sync.Mutex
	n      int
	closed bool
	idle   chan struct{} // closed when the last put has ended; nil until close is called
}

// begin reports whether a put can be sent. After close it can't.
func (u *underway) begin() bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	if !u.closed {
		u.n++
	}
	return !u.closed
}

func (u *underway) end() {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.n--; u.n == 0 && u.closed {
		close(u.idle)
	}
}

// close prevents further puts. It waits until the sent puts have ended, for at most the given time.
func (u *underway) close(c clock.Clock, most time.Duration) {
	u.mu.Lock()
	if !u.closed {
		u.closed, u.idle = true, make(chan struct{})
		if u.n == 0 {
			close(u.idle)
		}
	}
	u.mu.Unlock()
	select {
	case <-u.idle:
	case <-c.After(most):
	}
}

// send returns a function that puts a body of the attempt, for repeat and once. When ctx ends, the put continues until its
// timeout, because a cancelled request can still be applied, at an unknown time.
func (l *Locker) send(t *attempt, key string, body []byte, opts store.PutOptions) func(context.Context) (store.Object, error) {
	return func(ctx context.Context) (store.Object, error) {
		if !t.underway.begin() {
			return store.Object{}, context.Canceled
		}
		defer t.underway.end()
		if end, ok := ctx.Deadline(); ok {
			var cancel context.CancelFunc
			ctx, cancel = context.WithDeadline(context.WithoutCancel(ctx), end)
			defer cancel()
		}
		began := l.opts.Clock.Elapsed()
		t.bodies.note(bodyMark(key, body), t.sent)
		o, err := l.store.Put(ctx, key, body, opts)
		if err == nil {
			t.bodies.note(etagMark(key, o.ETag), t.sent)
			t.trips.put.note(l.opts.Clock.Elapsed() - began)
		}
		return o, err
	}
}

// sendRepeatedly puts a body of the attempt, as repeat does. again reports that it sent the put more than once: then an
// earlier send can be applied at any time.
func (l *Locker) sendRepeatedly(ctx context.Context, t *attempt, key string, body wire.Body, opts store.PutOptions) (o store.Object, again bool, err error) {
	var sends atomic.Int32
	send := l.send(t, key, body.Encode(), opts)
	o, err = repeat(ctx, l, l.times.Timeout, "put "+key, func(ctx context.Context) (store.Object, error) {
		sends.Add(1)
		return send(ctx)
	})
	return o, sends.Load() > 1, err
}

// trips are the durations of the fastest put and the fastest list of an acquire. A single slow request shows nothing.
type trips struct{ put, list trip }

// trip is the duration of the fastest request of one kind, or 0 if none was answered.
type trip struct{ quickest atomic.Int64 }

func (t *trip) note(d time.Duration) {
	for {
		was := t.quickest.Load()
		if was != 0 && was <= int64(d) || t.quickest.CompareAndSwap(was, int64(max(d, 1))) {
			return
		}
	}
}

func (t *trip) get() time.Duration { return time.Duration(t.quickest.Load()) }

// slowest returns the longer of the two durations.
func (t *trips) slowest() time.Duration { return max(t.put.get(), t.list.get()) }

// fastest returns the shorter of the two durations, or the only one. It bounds what may count as just now: an acquire
// often sends only one list request, which can have been a slow one.
func (t *trips) fastest() time.Duration {
	put, list := t.put.get(), t.list.get()
	return cmp.Or(min(put, list), put, list)
}

// pageTime is when the store made a page of a listing, by the store's clock and by ours.
type pageTime struct {
	store     time.Time     // by the store's clock; zero if the page has no time
	sent      time.Duration // Clock.Elapsed, when the request for the page was sent
	refreshed time.Duration // Clock.Elapsed, when the last refresh before that request was sent
	objects   int           // number of objects on the page
}

// ahead returns how much further the store's clock has advanced than ours between this page and a later one. store is
// the later page's time, and answered is Clock.Elapsed when the later page came.
func (p pageTime) ahead(store time.Time, answered time.Duration) time.Duration {
	return store.Sub(p.store) - (answered - p.sent)
}

// event returns an event of this kind with the attempt's fields.
func (t *attempt) event(kind EventKind) Event {
	return Event{Kind: kind, Mode: t.mode, Operation: t.operation, ID: t.id, Key: t.flag.key}
}

// manyLocks is the smallest number of locks whose progress is reported. progressPause is the shortest time between two
// reports.
const (
	manyLocks     = 256
	progressPause = 500 * time.Millisecond
)

// progress reports work on many locks. A nil progress reports nothing.
type progress struct {
	l *Locker

	mu   sync.Mutex
	e    Event
	last time.Duration
}

// progress begins to report the work on n locks. It returns nil if n is less than manyLocks.
func (l *Locker) progress(t *attempt, kind EventKind, n int) *progress {
	if n < manyLocks {
		return nil
	}
	p := &progress{l: l, e: t.event(kind), last: l.opts.Clock.Elapsed()}
	if kind == EventReaping {
		p.e.Total = n
	}
	l.tell(p.e)
	return p
}

// add counts n more locks as done.
func (p *progress) add(n int) {
	if p == nil || n == 0 {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.e.Done += n
	if now := p.l.opts.Clock.Elapsed(); now-p.last >= progressPause || p.e.Done == p.e.Total {
		p.last = now
		p.l.tell(p.e)
	}
}

func (l *Locker) putFlag(ctx context.Context, t *attempt) error {
	t.flag.maybe = true
	o, again, err := l.sendRepeatedly(ctx, t, t.flag.key, t.body, store.PutOptions{})
	if err != nil {
		refused := errors.Is(err, store.ErrPermission) || errors.Is(err, store.ErrNotFound) || errors.Is(err, store.ErrIrregular)
		if refused && !again { // else the store might still apply an earlier send
			t.flag.maybe = false
		}
		return fault.While("writing the lock", err)
	}
	l.raised(t, o)
	return nil
}

// raised records that the store has answered a put of our flag.
func (l *Locker) raised(t *attempt, o store.Object) {
	answered := l.opts.Clock.Elapsed()
	t.flag.put, t.flag.etag, t.flag.sent = true, o.ETag, t.sent
	t.raised = pageTime{store: o.Now, sent: t.sent}
	if t.mode == Shared {
		t.stood = answered
	}
	if !o.ModTime.IsZero() {
		t.stamped(o.ModTime, answered)
	}
}

// hastyTime bounds a withdrawal after a failure of the store or a cancellation. Objects that it doesn't delete expire.
const hastyTime = 3 * time.Second
