package replock

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/repolock/repolock/internal/clock"
	"github.com/repolock/repolock/internal/fault"
	"github.com/repolock/repolock/internal/text"
	"github.com/repolock/repolock/store"
)

// watch looks at a held lock every Options.Look until ctx ends: docs/evidence/protocol.md, Watch. A look notices
// a break soon, whatever the ttl. It also notices a hypervisor's pause, after which the lease still lasts by all
// clocks of this machine.
//
// A look that fails changes nothing: the lease lasts until its deadline.
func (k *term) watch(ctx context.Context) {
	c := k.l.opts.Clock
	unwritten, again := k.firstWrite()
	next := k.firstLook(k.Seen().Elapsed)
	w := clock.NewWatch(c)
	defer w.Stop()
	for pause := firstPoll; ; {
		if unwritten && c.Elapsed() >= again {
			unwritten = k.Renew(ctx) != nil // after a loss, ctx ends
			again = c.Elapsed() + firstPoll
		}
		now := clock.Read(c)
		wait := next - now.Elapsed
		if unwritten {
			wait = min(wait, again-now.Elapsed)
		}
		if now.Parted(k.Seen()) { // until a look is answered
			wait = min(wait, clock.Tick)
		}
		if w.Sleep(ctx, wait) != nil {
			return
		}
		now = clock.Read(c)
		if now.Elapsed >= k.end() {
			// It is lost, and ctx ends, unless a refresh extends it just now.
			next = now.Elapsed + firstPoll
			continue
		}
		if now.Elapsed < next && !now.Parted(k.Seen()) {
			continue
		}
		switch err := k.look(ctx); {
		case err == nil:
			pause = firstPoll
			next = k.nextLook(now.Elapsed)
		case errors.Is(err, ErrLost):
			k.Fail(err)
			return
		case errors.Is(err, errAgain):
			next = c.Elapsed() + transient
		default:
			next = c.Elapsed() + pause
			pause = min(2*pause, k.l.opts.Look)
		}
	}
}

// firstWrite reports whether the first refresh must come early, and when. If the flag's date is wrong because
// the wall clock is behind the store's, it is due now. An exclusive lock's is due in a second, because acquirers
// that came at the same time wait for the state held in the flag.
func (k *term) firstWrite() (bool, time.Duration) {
	now := k.l.opts.Clock.Elapsed()
	if k.l.behind(*k.now.Load()) > margin {
		return true, now
	}
	return k.t.mode == Exclusive, now + firstPoll
}

// firstLook returns when the first look after the acquire is due. For a lock without a name it is
// due after one to two seconds, because a client of the original protocol can have looked before
// our put and written after our look.
func (k *term) firstLook(sent time.Duration) time.Duration {
	next := k.nextLook(sent)
	if k.l.opts.Name == "" {
		next = min(next, sent+time.Second+k.l.jitter(time.Second/2))
	}
	return next
}

// nextLook returns when the next look is due, after one that was sent at the given time. It is
// early by a random time, so that many holders don't look at the same time.
func (k *term) nextLook(sent time.Duration) time.Duration {
	return sent + k.l.opts.Look - k.l.jitter(k.l.opts.Look/20)
}

// errAgain is the error of a look that found an acquirer that might be about to withdraw.
var errAgain = errors.New("looking again")

// saw records when the lock was seen, unless the clocks have parted since it was last seen: then
// only reassure can record it.
func (k *term) saw(r clock.Reading) {
	if !r.Parted(k.Seen()) {
		k.Saw(r)
	}
}

// sightings are the locks of others that a holder's looks have shown. Only the look that has the turn uses them.
type sightings struct {
	turn   chan struct{}
	memory memory
	last   pageTime // of the last page that had the store's time
	// crowded is whether listing all locks is expensive, as of the last listing of all.
	crowded *atomic.Bool
}

// crowd is the number of lock objects above which a shared holder's look lists as little as
// possible. Otherwise the cost of n holders' looks would grow with n². The number is a guess at the
// cost of a second request.
const crowd = 100

// newSightings begins with the results of the acquire: the store's time, and the stale lock.exclusive that a
// shared acquirer has left, with the time since when it is unchanged.
func newSightings(t *attempt) sightings {
	s := sightings{turn: make(chan struct{}, 1), memory: memory{}, last: t.page, crowded: new(atomic.Bool)}
	s.crowded.Store(t.page.objects > crowd)
	if t.leftPointer != nil {
		s.memory[t.leftPointer.Key] = t.leftPointer
	}
	return s
}

// pageTime is a page's time on the store's clock. In the zero value it is unknown.
type pageTime struct {
	now     time.Time
	asked   time.Duration // when the request for the page was sent
	leased  time.Duration // when the last refresh before that was sent
	objects int           // on the page
}

// stood returns how much further the store's clock has advanced than ours, from this page to a later one whose
// time is now.
func (p pageTime) stood(now time.Time, answered time.Duration) time.Duration {
	return now.Sub(p.now) - (answered - p.asked)
}

// look returns nil if our objects are stored and ours, and no client of another protocol has acquired a
// conflicting lock. It costs one list request, or two in a crowd, and one more for each of our objects that
// isn't on the first page.
func (k *term) look(ctx context.Context) error {
	began := clock.Read(k.l.opts.Clock)
	page, err := k.glance(ctx)
	if err != nil {
		return err
	}
	answered := k.l.opts.Clock.Elapsed()
	k.learn(storeTime{page.Now, answered})
	flag, pointer := k.objects()
	var written time.Time // mod time of the flag
	for _, o := range k.ofMode(&flag, &pointer) {
		seen, ok := inPage(page, o.key)
		if !ok {
			if seen, err = k.find(ctx, o.key); err != nil {
				return err
			}
		}
		if err := k.confirmSeen(ctx, o, seen); err != nil {
			return err
		}
		if o == &flag && seen != nil {
			written = seen.ModTime
		}
	}
	k.shown.Store(int64(began.Elapsed))
	select {
	case k.others.turn <- struct{}{}:
		defer func() { <-k.others.turn }()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	k.others.memory.forget(page, "")
	if err := k.stoodStill(ctx, page, began, answered, written); err != nil {
		return err // the next look fails again
	}
	return k.foreign(ctx, page, began.Elapsed, answered, maxAgain)
}

// glance returns the page that a look judges: the first one of all locks. In a crowd a shared
// holder's page has only lock.exclusive and its own flag, so that the cost doesn't grow with the
// number of others.
func (k *term) glance(ctx context.Context) (store.Page, error) {
	if k.t.mode == Exclusive || !k.others.crowded.Load() {
		page, err := k.firstPage(ctx, k.l.keys.all())
		k.others.crowded.Store(len(page.Objects) > crowd)
		return page, err
	}
	page, err := k.firstPage(ctx, k.l.keys.exclusive())
	if err != nil || page.Next != "" {
		return page, err
	}
	flag, err := ask(ctx, &k.renewer, "get "+k.t.flag.key, k.l.fetch(k.t.flag.key))
	switch {
	case errors.Is(err, store.ErrNotFound):
		return page, nil
	case errors.Is(err, store.ErrTooLarge):
		flag, err = content{}, nil // not our body: look reads it again and reports the loss
	}
	flag.object.Key = k.t.flag.key
	page.Objects = append(page.Objects, flag.object)
	return page, err
}

func (k *term) firstPage(ctx context.Context, prefix string) (store.Page, error) {
	return ask(ctx, &k.renewer, "list "+prefix, func(ctx context.Context) (store.Page, error) { return k.l.store.List(ctx, prefix, "") })
}

// inPage returns the object that a page of a listing shows under a key, or nil. ok is false if the
// key belongs on a later page.
func inPage(page store.Page, key string) (*store.Object, bool) {
	for i, o := range page.Objects {
		if o.Key == key {
			return &page.Objects[i], true
		}
	}
	return nil, covers(page, key)
}

// covers reports whether a key belongs on this page or an earlier one.
func covers(page store.Page, key string) bool {
	n := len(page.Objects)
	return page.Next == "" || n > 0 && page.Objects[n-1].Key > key
}

// foreign returns a *LostError if a client of another protocol holds a conflicting lock: if its lock is older
// than a lock that is about to be withdrawn. Our acquire has reaped all stale locks, except for the
// lock.exclusive that a shared acquirer leaves. So any other conflicting lock was put since, and counts as held
// unless it is certainly stale. foreign returns another error if a lock can't be read. It returns errAgain if
// one was just put, or is listed although a read doesn't find it. It judges only this page. But if a listed lock
// was replaced meanwhile, as lock.exclusive can be, it judges a later page, up to again times.
func (k *term) foreign(ctx context.Context, page store.Page, sent, answered time.Duration, again int) error {
	conflicts, prefix := kindExclusive, k.l.keys.exclusive()
	if k.t.mode == Exclusive {
		conflicts, prefix = kindShared, k.l.keys.all()
	}
	var suspects []*entry
	for _, o := range page.Objects {
		if k.l.keys.kind(o.Key) != conflicts || o.Size == 0 || k.t.keys[o.Key] {
			continue
		}
		if e := k.others.memory.see(o, conflicts, answered); e != k.t.leftPointer && !e.hasID() {
			suspects = append(suspects, e)
		}
	}
	adopt(page, suspects)
	k.l.readAll(ctx, suspects, false, nil)
	var d doubt
	now, vanished := *k.now.Load(), map[*entry]bool{} // vanished: listed and missing when read; true if settled
	for _, e := range suspects {
		age, known := e.age(now, sent) // rounding of mod times can add up to margin
		settled := e.changed || known && age > transient+margin || answered-e.since >= transient
		if errors.Is(e.err, errVanished) {
			e.read = false // the next look reads it again
			vanished[e] = settled
			continue
		}
		if errors.Is(e.err, errUnread) {
			e.read = false
			d.add(settled, e.err)
			continue
		}
		if e.err == nil && e.lease.ID != "" {
			continue
		}
		k.l.judge(e, now, sent)
		if e.verdict == Stale || e.verdict == Released {
			continue
		}
		if settled {
			return k.broken(e.Key, fmt.Sprintf("a client that doesn't keep to this protocol has acquired a conflicting lock: %s, operation %s",
				text.Or(e.lease.Holder, "unknown"), text.Or(e.lease.Operation, "unknown")))
		}
		d.young = true
	}
	if len(vanished) > 0 { // a listing counts more than a read
		sent := k.l.opts.Clock.Elapsed()
		later, err := k.firstPage(ctx, prefix)
		if err != nil {
			return err
		}
		for e, settled := range vanished {
			o, _ := inPage(later, e.Key)
			if o != nil && o.ETag != e.ETag && again > 0 {
				return k.foreign(ctx, later, sent, k.l.opts.Clock.Elapsed(), again-1)
			}
			if o != nil && o.Size > 0 {
				d.add(settled, fault.Errorf("%s: %w", e.Key, e.err))
			}
		}
	}
	return d.err()
}

// doubt is the reason why a look can't rule out a conflict. young: a conflicting lock was just put. unknown: the
// error because of which an older one couldn't be read.
type doubt struct {
	young   bool
	unknown error
}

func (d *doubt) add(settled bool, why error) {
	if settled {
		d.unknown = why
	} else {
		d.young = true
	}
}

func (d *doubt) err() error {
	if d.unknown == nil && d.young {
		return errAgain
	}
	return d.unknown
}

// hasID reports whether an entry is known to belong to a client of this protocol. Only its owner writes a flag,
// so an earlier version is enough.
func (e *entry) hasID() bool {
	return (e.read || e.carried) && e.err == nil && e.lease.ID != ""
}

// errStoodStill is errLate for a pause that only the store's clock shows.
var errStoodStill = fault.New(errLate, "this machine stood still while it acquired the lock, or the store's clock was set ahead")

// slept returns errStoodStill if the store's clock has advanced by more than ours since our flag
// was put, or between two looks of an attempt. Then this machine stood still, its own clocks didn't
// count that, and others can have seen its flag as stale. A server's Date can come from a proxy
// whose clock differs from the mod times. So the first page is compared with the answer to the put,
// if that has a time.
func (l *Locker) slept(t *attempt, page store.Page, sent, answered time.Duration) error {
	if t.polls || page.Now.IsZero() || !l.store.Properties().StoreClock {
		return nil
	}
	was := t.first
	if was.now.IsZero() {
		t.first, was = pageTime{now: page.Now, asked: sent}, t.raised
	}
	if flag, _ := inPage(page, t.flag.key); was.now.IsZero() && flag != nil {
		was = pageTime{now: flag.ModTime, asked: t.sent}
	}
	if !was.now.IsZero() && was.stood(page.Now, answered) > margin {
		return errStoodStill
	}
	return nil
}

// stoodStill refreshes the lock at once if this machine stood still, because then others can have
// seen the lock as stale. Two things show that: the store's clock has advanced by more than ours
// between two pages, or our clocks have parted since the lock was last seen.
func (k *term) stoodStill(ctx context.Context, page store.Page, began clock.Reading, answered time.Duration, written time.Time) error {
	now, last := pageTime{now: page.Now, asked: began.Elapsed, leased: k.sent()}, k.others.last
	told := !now.now.IsZero() && !last.now.IsZero() && k.l.store.Properties().StoreClock
	if !(told && last.stood(now.now, answered) > margin) && !began.Parted(k.Seen()) {
		k.saw(began)
		if !now.now.IsZero() {
			k.others.last = now
		}
		return nil
	}
	var ended time.Time
	if told {
		ended = last.now.Add(last.leased - last.asked + k.l.opts.TTL)
		// A refresh since the last page was applied in time.
		if next := written.Add(k.l.opts.TTL); written.Before(ended.Add(-margin)) && next.After(ended) {
			ended = next
		}
	}
	if lost := k.overdue(now.now, ended); lost != nil {
		lost.Definite = written.After(ended) // otherwise it can be resumed if it wasn't reaped
		return lost
	}
	err := k.reassure(ctx, ended)
	if err == nil && !now.now.IsZero() {
		k.others.last = now
	}
	return err
}

// overdue returns a *LostError if the lease had ended on the store's clock, unless If-Match is relied on.
// Without If-Match, a refresh can put our flag back just after another holder has deleted it. If that holder has
// released its lock since, no later look shows that. A refresh with If-Match puts nothing back.
func (k *term) overdue(now, ended time.Time) *LostError {
	if now.IsZero() || ended.IsZero() || now.Before(ended.Add(-margin)) || k.l.conditions.match.holds() {
		return nil
	}
	return k.broken(k.t.flag.key, "this machine stood still, and the lease had ended before it was refreshed")
}

// reassure returns nil if the lock is held although this machine might have stood still. It renews the lease
// first, because another acquirer could reap the lock just after a look at it. Then it looks for others as an
// acquirer does, because another acquirer might have reaped our flag just before the refresh put it back. ended
// is when the lease ends on the store's clock without the refresh, or zero if that is unknown.
func (k *term) reassure(ctx context.Context, ended time.Time) error {
	began := clock.Read(k.l.opts.Clock)
	if err := k.Renew(ctx); err != nil {
		return err
	}
	flag, pointer := k.objects()
	t := &attempt{
		mode: k.t.mode, operation: k.t.operation, id: k.t.id, ownAttempts: k.t.ownAttempts,
		flag: flag, pointer: pointer, trips: k.t.trips, deadline: k.end(),
	}
	switch err := k.lookAgain(ctx, t); { // our flag is live, so a later acquirer withdraws
	case errors.Is(err, errUnlisted):
		return k.broken(flag.key, "this machine stood still, and another client deleted the lock")
	case err != nil:
		return err
	}
	if lost := k.overdue(t.first.now, ended); lost != nil {
		return lost
	}
	// Another acquirer can have acquired and released its lock before our look reached the page of our flag.
	if err := k.confirm(ctx, &flag); err != nil {
		return err
	}
	k.Saw(began)
	return nil
}
