package replock

import (
	"context"
	"fmt"
	"maps"
	"math"
	"slices"
	"time"
)

// AcquireOption is an option of one acquire.
type AcquireOption func(*queue)

// Wait makes Shared or Exclusive wait up to d for conflicting locks to be released. Waiters acquire
// the lock in the order in which they came, and before all later acquirers that they conflict with.
// Shared waiters that come together hold it together. A waiter polls every 1 to 10 s, with one list
// request.
//
// After d the acquire returns a *HeldError. If the store fails meanwhile, the waiter continues to
// poll for up to the ttl. If the acquire's context ends first while locks conflict, the error
// matches both ErrHeld and the context's error. A negative d is refused: for a wait without an end
// there is Forever.
func Wait(d time.Duration) AcquireOption { return func(q *queue) { q.maxWait = d } }

// Forever makes Wait wait without an end.
const Forever time.Duration = math.MaxInt64

// The first poll comes after 1 to 2 s. The longer nothing changes, the longer are the pauses, up to
// 5 to 10 s.
const (
	firstPoll = time.Second
	lastPoll  = 5 * time.Second // lastPoll  = 5 * time.Second
)

// maxWatch is how long an acquirer watches a doubtful lock if it doesn't wait, or waits for less:
// enough for a lock of the default ttl.
const maxWatch = 2 * time.Minute

// queue is one acquire, which waits if locks conflict: docs/protocol.md, Wait.
//
// A waiting acquirer leaves a ticket, a flag in the state "waiting". Later acquirers that conflict
// with it yield to it. When its turn seems to have come, the acquirer starts a try under another
// key. The lock can't be held under the ticket's own key: a put of the ticket that seemed lost can
// be applied at any time, and would mark a held lock as waiting.
type queue struct {
	l         *Locker
	mode      Mode
	operation string
	parent    context.Context // of the lock's context
	memory    memory
	own       ownTries
	maxWait   time.Duration
	fence     bool // whether an exclusive lock needs a fencing number
	began     time.Duration
	ticket    *try // nil until it waits
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

// check returns an error if an option is out of bounds.
func (q *queue) check() error {
	if q.maxWait < 0 {
		return fmt.Errorf("wait %v: must not be negative; replock.Forever waits without an end", q.maxWait)
	}
	return nil
}

// waitedFor returns how long this acquirer has waited, and left how much longer it waits.
func (q *queue) waitedFor() time.Duration { return q.l.opts.Clock.Elapsed() - q.began }
func (q *queue) left() time.Duration      { return q.maxWait - q.waitedFor() }

// newTry starts a try at the ticket's place in the queue.
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

// wait returns nil when the conflicting locks of a try seem to be gone. Its last look grants
// nothing: the next try must look itself.
//
// wait also watches doubtful locks, even for an acquirer that doesn't wait. The watch ends when
// they change and so are live, when they are deleted, or when they are stale because they didn't
// change for their whole ttl. They count as held if that would take longer than the acquirer waits,
// and longer than maxWatch.
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
			q.tell(t, f) // at least one of them was refreshed
		}
		if maps.EqualFunc(now, before, func(*entry, *entry) bool { return true }) { // the same keys
			pause = min(pause*5/4, lastPoll)
		} else {
			pause, q.hints.since = firstPoll, q.l.opts.Clock.Elapsed()
		}
		was, before = f, now
		at, err := q.ticketTry(ctx, t)
		if serr := q.sleep(ctx, q.untilPoll(pause, f), f); serr == nil && err == nil {
			f, err = q.l.look(ctx, at, q.memory)
		}
		if ctx.Err() != nil {
			return q.ended(ctx, t, was)
		}
		switch next := q.again.afterPoll(t, f, err, q.waits()); next.step {
		case startAgain:
			if err != nil {
				at.flag.put = false // the ticket was broken, and is put again if needed
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

// ticketTry keeps the ticket live, and returns the try for which the polls look: the ticket, or the
// last try of an acquirer that only watches doubtful locks.
func (q *queue) ticketTry(ctx context.Context, t *try) (*try, error) {
	if q.maxWait == 0 {
		t.polls = true
		return t, nil
	}
	if q.ticket == nil {
		ticket, err := q.newTry()
		if err != nil {
			return nil, err
		}
		ticket.body.State, ticket.polls, ticket.st = StateWaiting, true, t.st
		ticket.body.AcquiredAt, ticket.place = t.body.AcquiredAt, place(ticket.flag.key)
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

// decidesBy returns when a try that outlasts others must end: before its lease ends, and before the
// ticket must be refreshed.
func (q *queue) decidesBy(t *try) time.Duration {
	by := t.deadline - q.l.times.Timeout
	if q.ticket != nil {
		by = min(by, q.refreshAt())
	}
	return by
}

// untilPoll returns the time until the next poll. The poll comes early if the ticket must be
// refreshed, if the wait ends, when the ttl of a doubtful lock is over, and when all live locks
// become stale unless they are refreshed. A waiter behind others polls half as often.
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

// refused reports whether the conflicts can't be resolved in time by watching alone.
func (q *queue) refused(f findings) bool {
	return len(f.live) > 0 || slices.ContainsFunc(f.doubtful, func(e *entry) bool {
		return e.since+e.ttl()-q.began > max(q.maxWait, maxWatch)
	})
}

// waits reports whether the acquirer has waited, and its wait isn't over.
func (q *queue) waits() bool { return q.waited && q.left() > 0 }

// tell reports the conflicting locks as an event.
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

// held reports the conflicting locks as an event, and returns the error that names them. why is the
// reason if the wait ended early, or nil.
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

// leave removes the ticket.
func (q *queue) leave(ctx context.Context) {
	if q.ticket != nil {
		q.l.withdraw(ctx, q.ticket, nil)
	}
}
