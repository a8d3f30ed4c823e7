package replock

import (
	"context"
	"fmt"
	"maps"
	"math"
	"slices"
	"time"
)

// AcquireOption changes how one lock is acquired.
type AcquireOption func(*queue)

// Wait makes Shared or Exclusive wait up to d for conflicting locks to be released. Waiters
// get the lock in the order in which they came, and before all later acquirers that they conflict
// with; shared ones that come together hold it together. A waiter polls
// each 1 to 10 s, with one list request.
//
// When d is over a *HeldError is returned. A store that fails meanwhile is polled on, for up to
// the ttl. If the acquire's context ends first while locks are in the way, the error is both a
// *HeldError and the context's error. The acquire refuses a negative d: for a wait without an end
// there is Forever.
func Wait(d time.Duration) AcquireOption { return func(q *queue) { q.maxWait = d } }

// Forever makes Wait wait without an end.
const Forever time.Duration = math.MaxInt64

// A poll comes 1 to 2 s after the one before, and less often, up to each 10 s, the
// longer nothing changes.
const (
	firstPoll = time.Second
	lastPoll  = 5 * time.Second // to 10 s
)

// maxWatch is how long an acquirer watches a lock in doubt if it does not wait, or not for as
// long: enough for a lock of the default ttl.
const maxWatch = 2 * time.Minute

// queue is where an acquirer waits for the locks in its way: docs/protocol.md, Wait.
//
// An acquirer leaves a ticket there, a flag in the state "waiting". Later acquirers that it
// conflicts with yield to it. When its turn seems to have come, the acquirer starts a try under
// another key. On the ticket's own key the lock cannot be held: a put of the ticket that seemed lost
// can be applied at any time, and would mark a held lock as waiting.
type queue struct {
	l         *Locker
	mode      Mode
	operation string
	parent    context.Context // of the lock's context
	memory    memory
	own       ownTries
	maxWait   time.Duration
	fence     bool // wanted with an exclusive lock
	began     time.Duration
	ticket    *try // nil before it waits
	waited    bool
	again     again
	trips     trips
	hints     hints
}

func (l *Locker) newQueue(ctx context.Context, mode Mode, operation string, opts []AcquireOption) *queue {
	q := &queue{l: l, mode: mode, operation: operation, parent: ctx, memory: memory{}, own: nothingYet(), began: l.opts.Clock.Elapsed(), again: again{l: l}}
	for _, o := range opts {
		o(q)
	}
	return q
}

// check returns an error for an option that is out of its bounds.
func (q *queue) check() error {
	if q.maxWait < 0 {
		return fmt.Errorf("wait %v: must not be negative; replock.Forever waits without an end", q.maxWait)
	}
	return nil
}

// waitedFor returns how long this acquirer has waited, left how long it goes on.
func (q *queue) waitedFor() time.Duration { return q.l.opts.Clock.Elapsed() - q.began }
func (q *queue) left() time.Duration      { return q.maxWait - q.waitedFor() }

// newTry starts a try that takes the ticket's place in the queue.
func (q *queue) newTry() (*try, error) {
	t, err := q.l.newTry(q.mode, q.operation, q.own)
	if err != nil {
		return nil, err
	}
	q.own, t.trips, t.parent = t.ownTries, &q.trips, q.parent
	if q.ticket != nil {
		t.place, q.ticket.ownTries = q.ticket.place, t.ownTries
	}
	return t, nil
}

// wait returns nil when the locks that a try found in its way seem to be gone. Its last look
// decides nothing: the next try does.
//
// It also watches locks in doubt, even for an acquirer that does not wait, until they change and
// are live, are deleted, or stay unchanged for their whole ttl and are stale. They count as held
// if that would take longer than the acquirer waits, and than maxWatch.
func (q *queue) wait(ctx context.Context, t *try, f findings) error {
	var was findings
	var before map[string]*entry
	pause := firstPoll
	for {
		if q.refused(f) && q.left() <= 0 {
			return q.held(t, f, nil)
		}
		now := f.inTheWay()
		if !maps.EqualFunc(now, before, func(e, was *entry) bool { return e.ETag == was.ETag && e.verdict == was.verdict }) {
			q.tell(t, f) // at least one was refreshed
		}
		if maps.EqualFunc(now, before, func(*entry, *entry) bool { return true }) { // the same keys
			pause = min(pause*5/4, lastPoll)
		} else {
			pause, q.hints.since = firstPoll, q.l.opts.Clock.Elapsed()
		}
		was, before = f, now
		at, err := q.ticketTry(ctx, t, f)
		if serr := q.sleep(ctx, q.untilPoll(pause, f), f); serr == nil && err == nil {
			f, err = q.l.look(ctx, at, q.memory)
		}
		if ctx.Err() != nil {
			return q.ended(ctx, t, was)
		}
		switch next := q.again.afterPoll(t, f, err, q.waits()); next.step {
		case startAgain:
			if err != nil {
				at.flag.put = false // the ticket was broken: it is put again if need be
			}
			return nil
		case giveUp:
			return next.err
		}
		if err != nil {
			f = was
		}
	}
}

// ticketTry keeps the ticket live, and returns the try that the polls look for: the ticket, or the
// last try if there is none. A shared acquirer has none while one of an older version is before it,
// which would wait for it as for a lock.
func (q *queue) ticketTry(ctx context.Context, t *try, f findings) (*try, error) {
	if q.maxWait == 0 || q.mode == Shared && f.older() {
		q.leave(ctx)
		q.ticket, t.polls = nil, true
		return t, nil
	}
	if q.ticket == nil {
		ticket, err := q.newTry()
		if err != nil {
			return nil, err
		}
		ticket.body.State, ticket.polls, ticket.st = StateWaiting, true, t.st
		ticket.body.AcquiredAt, ticket.body.PassesTickets = t.body.AcquiredAt, q.mode == Exclusive
		ticket.place = place(ticket.flag.key)
		q.ticket = ticket
	}
	if q.ticket.flag.put && q.l.opts.Clock.Elapsed() < q.refreshAt() {
		return q.ticket, nil
	}
	q.l.date(q.ticket)
	return q.ticket, q.l.putFlag(ctx, q.ticket)
}

// refreshAt returns when the ticket must be refreshed.
func (q *queue) refreshAt() time.Duration { return q.ticket.sent + q.l.times.Interval }

// decidesBy returns when a try that outlasts others must be over: in time before its lease ends, and before the
// ticket must be refreshed.
func (q *queue) decidesBy(t *try) time.Duration {
	by := t.deadline - q.l.times.Timeout
	if q.ticket != nil {
		by = min(by, q.refreshAt())
	}
	return by
}

// untilPoll returns the time to the next poll, capped by the ticket's refresh, the end of the wait,
// the end of each doubtful lock's ttl, and the time when all live ones are stale unless refreshed. A
// waiter behind others polls half as often.
func (q *queue) untilPoll(pause time.Duration, f findings) time.Duration {
	now := q.l.opts.Clock.Elapsed()
	d := pause/2 + q.l.jitter(pause)
	if f.before() > 0 {
		d *= 2
	}
	if q.ticket != nil {
		d = min(d, q.refreshAt()-now)
	}
	if q.refused(f) {
		d = min(d, q.left())
	}
	for _, e := range f.doubtful {
		d = min(d, e.since+e.ttl()-now)
	}
	if end := q.l.endOf(f); end > now {
		d = min(d, end-now)
	}
	return max(d, 10*time.Millisecond)
}

// refused reports whether watching alone cannot clear the way in time.
func (q *queue) refused(f findings) bool {
	return len(f.live) > 0 || slices.ContainsFunc(f.doubtful, func(e *entry) bool {
		return e.since+e.ttl()-q.began > max(q.maxWait, maxWatch)
	})
}

// waits reports whether the acquirer has waited, and goes on.
func (q *queue) waits() bool { return q.waited && q.left() > 0 }

// tell reports the locks in the way as an event.
func (q *queue) tell(t *try, f findings) {
	e := t.event(EventWaiting)
	e.Holders, e.Waited = q.l.infos(slices.Concat(f.live, f.doubtful), f), q.waitedFor()
	switch {
	case len(e.Holders) == 0:
		return
	case len(f.live) == 0:
		e.Kind = EventWatching
	}
	q.waited = true
	q.l.tell(e)
}

// held reports the locks in the way as an event, and returns them as an error. why is the
// reason for which the wait ended early, or nil.
func (q *queue) held(t *try, f findings, why error) error {
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

// older reports whether the ticket of an older version is in the way.
func (f findings) older() bool {
	return slices.ContainsFunc(f.live, func(e *entry) bool { return e.isTicket() && !e.lease.PassesTickets })
}

// leave removes the ticket.
func (q *queue) leave(ctx context.Context) {
	if q.ticket != nil {
		q.l.withdraw(ctx, q.ticket, nil)
	}
}
