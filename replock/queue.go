package replock

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/repolock/repolock/internal/clock"
	"github.com/repolock/repolock/internal/fault"
	"github.com/repolock/repolock/replock/internal/verdict"
	"github.com/repolock/repolock/replock/internal/wire"
	"github.com/repolock/repolock/store"
)

// maxWatch is how long an acquirer watches a doubtful lock if it doesn't wait, or waits for less. It is long enough for
// a lock of the default ttl.
const maxWatch = 2 * time.Minute

// queue is one acquire, which waits if locks conflict: docs/evidence/protocol.md, Wait.
//
// A waiting acquirer leaves a ticket, which is a flag in the state "waiting". Later acquirers that conflict with it
// yield to it. When its turn seems to have come, the acquirer starts an attempt under another key. It can't hold the
// lock under the ticket's own key: a put of the ticket that seemed lost can be applied at any time, and would mark a
// held lock as waiting.
type queue struct {
	l         *Locker
	mode      Mode
	operation string
	parent    context.Context // parent of the lock's context
	memory    verdict.Memory
	own       ownAttempts
	maxWait   time.Duration
	fence     bool // whether an exclusive lock needs a fencing token
	began     time.Duration
	ticket    *attempt // nil until the acquirer waits
	waited    bool
	decide    decider
	trips     trips
	hints     hints
}

func (l *Locker) newQueue(ctx context.Context, mode Mode, operation string, opts []AcquireOption) *queue {
	q := &queue{l: l, mode: mode, operation: operation, parent: ctx, memory: verdict.Memory{}, own: nothingYet(), maxWait: Forever, began: l.opts.Clock.Elapsed(), decide: decider{l: l}, hints: hints{gone: map[string]string{}}}
	for _, o := range opts {
		o.set(q)
	}
	return q
}

// check returns an error if an option is out of bounds.
func (q *queue) check() error {
	if q.maxWait < 0 {
		return fmt.Errorf("wait %v: must not be negative; replock.Forever waits without an end", q.maxWait)
	}
	return nil
}

// waitedFor returns how long this acquirer has waited, and left how much longer it waits.
func (q *queue) waitedFor() time.Duration { return q.l.opts.Clock.Elapsed() - q.began }

func (q *queue) left() time.Duration { return q.maxWait - q.waitedFor() }

// newAttempt starts an attempt at the ticket's place in the queue.
func (q *queue) newAttempt() (*attempt, error) {
	t, err := q.l.newAttempt(q.mode, q.operation, q.own)
	if err != nil {
		return nil, err
	}
	q.own, t.trips, t.parent = t.ownAttempts, &q.trips, q.parent
	t.waits = q.left() > 0
	t.queues = t.waits && q.ticket == nil
	if q.ticket != nil {
		t.place, q.ticket.ownAttempts = q.ticket.place, t.ownAttempts
	}
	return t, nil
}

// wait returns nil when the conflicting locks of an attempt seem to be gone. Its last look grants nothing: the next
// attempt must look again.
//
// wait also watches doubtful locks, even for an acquirer that doesn't wait. It watches a lock until it changes, and so
// is live, until it is deleted, or until it hasn't changed for its whole ttl, and so is stale. A doubtful lock counts
// as held if the watch would end later than the acquirer's wait and later than maxWatch.
func (q *queue) wait(ctx context.Context, t *attempt, f verdict.Findings) error {
	var was verdict.Findings
	var before map[string]*verdict.Entry
	pause := firstPoll
	for {
		if q.refused(f) && q.left() <= 0 {
			return q.held(t, f, nil)
		}
		now := f.Conflicts()
		if !maps.EqualFunc(now, before, func(e, was *verdict.Entry) bool { return e.ETag == was.ETag && e.Verdict == was.Verdict }) {
			q.tell(t, f) // at least one of them was refreshed
		}
		if len(f.Ahead) == len(was.Ahead) && maps.EqualFunc(now, before, func(*verdict.Entry, *verdict.Entry) bool { return true }) { // the same keys
			pause = min(pause*5/4, lastPoll)
		} else {
			pause, q.hints.since = firstPoll, q.l.opts.Clock.Elapsed()
		}
		before = now
		comes := q.ticket == nil
		at, err := q.keepTicket(ctx, t)
		if comes && err == nil && q.ticket != nil {
			f.Drop(at.isBefore) // clocks differ: by its place our new ticket comes before these waiters
			if len(now) > 0 && len(f.Conflicts()) == 0 {
				return nil
			}
		}
		was = f
		gone, serr := q.sleep(ctx, q.untilPoll(pause, f), f)
		switch {
		case serr != nil || err != nil:
		case gone && len(f.Ahead) == 0 && len(now) == 1 && !f.Unread:
			return nil // it was the only conflicting lock
		default:
			f, err = q.l.look(ctx, at, q.memory)
		}
		if ctx.Err() != nil {
			return q.ended(ctx, t, was)
		}
		if f.Unlisted || errors.Is(err, errUnlisted) {
			at.flag.put = false // the ticket was broken: put it again while the conflicts last
		}
		switch next := q.decide.afterPoll(t, f, err, q.waits()); next.step {
		case startAgain:
			return nil
		case giveUp:
			return next.err
		}
		if err != nil {
			f = was
		}
	}
}

// keepTicket keeps the ticket live, and returns the attempt for which the polls look. That is the ticket, or the last
// attempt of an acquirer that only watches doubtful locks.
func (q *queue) keepTicket(ctx context.Context, t *attempt) (*attempt, error) {
	if q.maxWait == 0 {
		t.polls = true
		return t, nil
	}
	if q.ticket == nil {
		ticket, err := q.newAttempt()
		if err != nil {
			return nil, err
		}
		ticket.body.State, ticket.polls, ticket.st = wire.StateWaiting, true, t.st
		ticket.flag.key = wire.Ticket(ticket.flag.key)
		ticket.keys[ticket.flag.key] = true
		ticket.body.AcquiredAt, ticket.place = t.body.AcquiredAt, wire.Place(ticket.flag.key)
		ticket.ticket = ticket.flag.key
		q.ticket, q.own.ticket = ticket, ticket.flag.key
	}
	if q.ticket.flag.put && q.l.opts.Clock.Elapsed() < q.refreshAt() {
		return q.ticket, nil
	}
	q.l.date(q.ticket)
	return q.ticket, q.l.putFlag(ctx, q.ticket)
}

// refreshAt returns when the ticket must be refreshed.
func (q *queue) refreshAt() time.Duration { return q.ticket.sent + q.l.times.Interval }

// decidesBy returns when an attempt must stop waiting for others to withdraw: before its lease ends, and before the
// ticket must be refreshed.
func (q *queue) decidesBy(t *attempt) time.Duration {
	by := t.deadline - q.l.times.Timeout
	if q.ticket != nil {
		by = min(by, q.refreshAt())
	}
	return by
}

// untilPoll returns the time until the next poll. The poll comes early if the ticket must be refreshed, if the wait
// ends, or if the ttl of a doubtful lock ends. It also comes when all live locks are stale unless they are refreshed.
// The more waiters are before this one, the longer the time is.
func (q *queue) untilPoll(pause time.Duration, f verdict.Findings) time.Duration {
	now := q.l.opts.Clock.Elapsed()
	d := pause/2 + q.l.jitter(pause)
	n := time.Duration(len(f.Ahead))
	d = min(d*(1+n), 2*d+lastPoll+n*morePoll)
	if q.ticket != nil {
		d = min(d, q.refreshAt()-now)
	}
	if q.refused(f) {
		d = min(d, q.left())
	}
	for _, e := range f.Doubtful {
		d = min(d, e.Since+e.TTL()-now)
	}
	if end := q.l.judges().EndOf(f); end > now {
		d = min(d, end-now)
	}
	return max(d, 10*time.Millisecond)
}

// refused reports whether the acquirer must be refused when its wait ends: a lock is live, or a doubtful one would have
// to be watched for too long.
func (q *queue) refused(f verdict.Findings) bool {
	return len(f.Live) > 0 || slices.ContainsFunc(f.Doubtful, func(e *verdict.Entry) bool {
		return e.Since+e.TTL()-q.began > max(q.maxWait, maxWatch)
	})
}

// waits reports whether the acquirer has begun to wait, and its wait isn't over.
func (q *queue) waits() bool { return q.waited && q.left() > 0 }

// tell reports the conflicting locks as an event.
func (q *queue) tell(t *attempt, f verdict.Findings) {
	e := t.event(EventWaiting)
	e.Holders, e.Waited = q.l.infos(slices.Concat(f.Live, f.Doubtful), f), q.waitedFor()
	switch {
	case len(e.Holders) == 0:
		return
	case len(f.Live) == 0:
		e.Kind = EventWatching
	}
	q.waited = true
	q.l.tell(e)
}

// held reports the conflicting locks as an event, and returns the error that names them. why is the
// reason if the wait ended early, or nil.
func (q *queue) held(t *attempt, f verdict.Findings, why error) error {
	err := q.l.heldError(t, f)
	err.Err = why
	if q.maxWait > 0 {
		err.Waited = q.waitedFor()
	}
	e := t.event(EventBlocked)
	e.Holders, e.Waited, e.Err = err.Holders, err.Waited, why
	q.l.tell(e)
	return err
}

// leave removes the ticket from the store.
func (q *queue) leave(ctx context.Context) {
	if q.ticket != nil {
		q.l.withdraw(ctx, q.ticket, nil)
	}
}

// hints let a waiter look before its next poll: docs/evidence/protocol.md, Wait. They decide nothing. While the blocker
// is stored, each look finds a conflict. So a waiter reads only the blocker, and looks when the blocker is gone. A read is
// cheaper than a look. The waiter reads at each hint that the store gives for the blocker's key or, if the store gives
// none, as often as pace allows.
type hints struct {
	key    string          // the blocker's, for which the store was last asked for hints
	store  <-chan struct{} // hints of the store, or nil if it gives none
	stop   func()          // ends the hints
	since  time.Duration   // when the keys of the conflicting locks last changed
	budget budget
	read   trip              // its quickest read
	gone   map[string]string // ETags, by key, of blockers that a read didn't find
}

// watch asks the store for hints about the blocker, once for each. It reports whether the hints have just begun. Then
// the caller must look for a deletion that came before them.
func (q *queue) watch(ctx context.Context, b *verdict.Entry) (begun bool) {
	h := &q.hints
	if b != nil && b.Key == h.key {
		return false
	}
	if h.stop != nil {
		h.stop()
	}
	if h.key, h.store = "", nil; b == nil {
		return false
	}
	h.key = b.Key
	ctx, h.stop = context.WithCancel(ctx)
	var err error
	h.store, err = store.Watch(ctx, q.l.store, h.key)
	return err == nil
}

// sleep waits until the next poll, for d, or until the blocker is gone. It reports whether the blocker is gone.
func (q *queue) sleep(ctx context.Context, d time.Duration, f verdict.Findings) (gone bool, err error) {
	c := q.l.opts.Clock
	end := c.Elapsed() + d
	blocking := f.Conflicts()
	for _, e := range f.Ahead {
		blocking[e.Key] = e
	}
	maps.DeleteFunc(q.hints.gone, func(key, etag string) bool { return blocking[key] == nil || blocking[key].ETag != etag })
	b := f.Blocker(q.hints.gone)
	unseen := q.watch(ctx, b) // the blocker might have been deleted before the hints began
	for !gone && (unseen || q.untilHint(ctx, b, f, end)) {
		unseen = false
		pause := min(q.hints.budget.take(c.Elapsed()), end-c.Elapsed())
		if clock.Sleep(ctx, c, pause) != nil {
			break
		}
		gone = q.isGone(ctx, b, end-c.Elapsed())
	}
	return gone, ctx.Err()
}

// untilHint waits until the waiter should read the blocker: at a hint of the store, or after the pause of pace. It
// returns false if the next poll is due first, or ctx has ended.
func (q *queue) untilHint(ctx context.Context, b *verdict.Entry, f verdict.Findings, end time.Duration) bool {
	left := end - q.l.opts.Clock.Elapsed()
	next := min(left, q.untilRead(b, f))
	hinted, err := clock.SleepUntil(ctx, q.l.opts.Clock, next, q.hints.store)
	return err == nil && (hinted || next < left)
}

// untilRead returns the time until the waiter reads the blocker without a hint. The more waiters are before this one,
// the less often it reads, because they acquire the lock first. But it doesn't pause for much longer than the time since
// the last change. Otherwise a line of short holds would have moved on to it long before it reads.
func (q *queue) untilRead(b *verdict.Entry, f verdict.Findings) time.Duration {
	if b == nil || q.hints.store != nil || q.l.pace.first == 0 {
		return Forever
	}
	waited := q.l.opts.Clock.Elapsed() - q.hints.since
	pause := q.l.pace.after(waited)
	if waited < quickFor {
		pause = min(pause, q.beat(beatTrips))
	}
	n := time.Duration(1 + len(f.Ahead))
	return q.l.jitter(min(n*pause, max(n*q.beat(lineTrips), waited/lineShare)))
}

// beat is a pause of this many round trips, or leastBeat if that is longer. A waiter that came with a crowd has measured
// how slow the store was then. So once it has read, only its quickest read counts.
func (q *queue) beat(trips int) time.Duration {
	trip := q.hints.read.get()
	if trip == 0 {
		trip = q.trips.slowest()
	}
	return max(time.Duration(trips)*trip, leastBeat)
}

// isGone reports whether a read, within limit, shows that a conflicting lock was released or that another lock has
// replaced it. A read that fails shows nothing.
func (q *queue) isGone(ctx context.Context, e *verdict.Entry, limit time.Duration) bool {
	began := q.l.opts.Clock.Elapsed()
	c, err := once(ctx, "get "+e.Key, q.l.fetch(e.Key))(min(limit, q.l.times.Timeout))
	gone := errors.Is(err, store.ErrNotFound)
	if gone || err == nil {
		q.hints.read.note(q.l.opts.Clock.Elapsed() - began)
	}
	if err == nil {
		now, err := wire.Decode(c.raw)
		gone = errors.Is(err, wire.ErrEmptied) || err == nil && e.Read && now.ID != e.Lease.ID
	}
	if gone {
		q.hints.gone[e.Key] = e.ETag
	}
	return gone
}

// ended returns the error of an acquire whose context has ended. It names the locks that conflicted in the last look.
func (q *queue) ended(ctx context.Context, t *attempt, f verdict.Findings) error {
	why := whyEnded(ctx)
	if f.Live = slices.Concat(f.Live, f.Doubtful); len(f.Live) > 0 {
		return q.held(t, f, why)
	}
	return fault.While(fmt.Sprintf("acquiring the %s lock", q.mode), why)
}

// AcquireOption is an option of one acquire.
type AcquireOption struct{ set func(*queue) }

// WithWait bounds the wait for conflicting locks: after d the acquire returns a *HeldError. Without WithWait, or with
// Forever, the acquire waits until its context ends. With 0 it tries once. A negative d is refused.
//
// Waiters acquire the lock in the order in which they came, and before all later acquirers that they conflict with.
// Shared waiters that come together hold it together. A waiter polls every 1 to 10 s, with one list request. Behind
// other waiters it polls less often. Unless the store reports deletions (store.Watcher), it also reads one object before
// it between the polls: every 250 ms at first, on a quick store every 50 ms for 3 s, and less often the longer it waits
// and the more waiters are before it.
//
// If the store fails during the wait, the waiter continues to poll for up to the ttl. It does so for at least two minutes
// if the store refuses the credentials, because another process might replace them. If the acquire's context ends while
// locks conflict, the error matches both ErrHeld and the context's error.
func WithWait(d time.Duration) AcquireOption {
	return AcquireOption{func(q *queue) { q.maxWait = d }}
}

// Forever is a wait without an end.
const Forever time.Duration = math.MaxInt64

// WithParent makes parent the parent of the lock's context, instead of the acquire's context. The lock's context has
// parent's values and ends with it. The end of parent also ends the acquire. The lock itself is held until Release.
func WithParent(parent context.Context) AcquireOption {
	return AcquireOption{func(q *queue) { q.parent = parent }}
}

// WithFencingToken makes an exclusive acquire take a fencing token with the lock: see Lock.FencingToken. It costs
// three more requests: a get, a put and a list. The acquire fails with ErrNoFencingToken on a store that doesn't
// itself honour If-Match and If-None-Match. A shared acquire ignores the option.
func WithFencingToken() AcquireOption {
	return AcquireOption{func(q *queue) { q.fence = true }}
}
