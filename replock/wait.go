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
	"github.com/repolock/repolock/store"
)

// AcquireOption changes how a lock is taken.
type AcquireOption func(*queue)

// Wait has Shared or Exclusive wait for as long for the holders of conflicting locks to
// release them. Who waits for the exclusive lock gets it before all who come later,
// whichever lock they want. When the time is over the error is a *HeldError. A
// store that fails is waited for, too, for up to the ttl. If the acquire's context ends
// first, the error is both: a *HeldError, and context.Canceled or DeadlineExceeded.
func Wait(d time.Duration) AcquireOption { return func(q *queue) { q.patience = max(d, 0) } }

// Forever is a time to Wait without an end.
const Forever time.Duration = math.MaxInt64

// A poll comes 1 to 2 s after the one before, and less often, up to each 10 s, the
// longer nothing changes.
const (
	firstPoll = time.Second
	lastPoll  = 5 * time.Second // to 10 s
)

// maxWatch is for how long a lock that is perhaps stale is watched by an acquirer who doesn't
// want to wait, or not for as long: enough for one of the default ttl.
const maxWatch = 2 * time.Minute

// queue is where an acquirer waits for those in its way: PROTOCOL.md, Wait.
//
// An exclusive acquirer leaves a ticket there, an intent in the state "waiting". Shared
// acquirers yield to it, so that it gets its turn; exclusive ones do if it is before
// their own. A ticket is good for nothing else. When its turn seems to have come,
// the acquirer makes an attempt as if it had just arrived, under another key: on a
// ticket's own key the lock can't be held, because a put of the ticket that was
// thought lost could be applied at any time, and say of a held lock that it is only
// waiting. A shared acquirer leaves nothing.
type queue struct {
	l         *Locker
	mode      Mode
	operation string
	parent    context.Context // of the lock's context
	sight     sight
	mine      mine
	patience  time.Duration
	began     time.Duration
	ticket    *try // nil before it waits, and if it is for a shared lock
	waited    bool
	failing   time.Duration // since when the store has failed, or 0
	trips     trips
}

func (l *Locker) newQueue(ctx context.Context, mode Mode, operation string, opts []AcquireOption) *queue {
	q := &queue{l: l, mode: mode, operation: operation, parent: context.WithoutCancel(ctx), sight: sight{}, mine: nothingYet(), began: l.opts.Clock.Elapsed()}
	for _, o := range opts {
		o(q)
	}
	return q
}

// waitedFor is how long it has been waiting, and left for how long it goes on.
func (q *queue) waitedFor() time.Duration { return q.l.opts.Clock.Elapsed() - q.began }
func (q *queue) left() time.Duration      { return q.patience - q.waitedFor() }

// newTry is one that the ticket is for.
func (q *queue) newTry() (*try, error) {
	t, err := q.l.newTry(q.mode, q.operation, q.mine)
	if err != nil {
		return nil, err
	}
	q.mine, t.trips, t.parent = t.mine, &q.trips, q.parent
	if q.ticket != nil {
		t.place, q.ticket.mine = q.ticket.place, t.mine
	}
	return t, nil
}

// wait returns nil when what an attempt found in its way seems to be gone. Its last
// look is no acquire's: the next attempt finds out.
//
// Locks that are only perhaps stale are watched, also by who doesn't want to wait,
// until they aren't in doubt any more: they change, and are live, or they are deleted,
// or they stay as they are for their whole ttl, and are stale whatever any clock says.
// If that would take longer than the acquirer waits, and than maxWatch, they count as held.
func (q *queue) wait(ctx context.Context, t *try, f found) error {
	var was found
	var before map[string]*entry
	pause := firstPoll
	for {
		if q.refused(f) && q.left() <= 0 {
			return q.held(t, f)
		}
		now := f.inTheWay()
		if !maps.EqualFunc(now, before, unchanged) {
			q.tell(t, f)
		}
		if maps.EqualFunc(now, before, func(*entry, *entry) bool { return true }) { // the same keys
			pause = min(pause*5/4, lastPoll)
		} else {
			pause = firstPoll
		}
		was, before = f, now
		at, err := q.stand(ctx, t)
		if clock.Sleep(ctx, q.l.opts.Clock, q.until(pause, f)) == nil && err == nil {
			f, err = q.l.look(ctx, at, q.sight)
		}
		switch {
		case ctx.Err() != nil:
			return q.ended(ctx, t, was)
		case errors.Is(err, errUnlisted):
			at.flag.put = false // somebody has broken it: it is put again if need be
			return nil
		case err == nil && len(f.live)+len(f.doubtful) == 0:
			return nil
		case err == nil:
			q.failing = 0
		case q.endures(err):
			f = was
		default:
			return fmt.Errorf("waiting for the %s lock: %w", q.mode, err)
		}
	}
}

// stand keeps the ticket live, and gives the try that its polls look for: of the
// attempt before if there is no ticket.
func (q *queue) stand(ctx context.Context, t *try) (*try, error) {
	if q.patience == 0 || q.mode == Shared {
		t.polls = true
		return t, nil
	}
	if q.ticket == nil {
		ticket, err := q.newTry()
		if err != nil {
			return nil, err
		}
		ticket.body.State, ticket.polls, ticket.st = stateWaiting, true, t.st
		ticket.body.AcquiredAt = t.body.AcquiredAt
		q.ticket = ticket
	}
	if q.ticket.flag.put && q.l.opts.Clock.Elapsed() < q.due() {
		return q.ticket, nil
	}
	q.l.date(q.ticket)
	return q.ticket, q.l.putFlag(ctx, q.ticket)
}

// due is when the ticket is to be refreshed.
func (q *queue) due() time.Duration { return q.ticket.sent + q.l.schedule.Interval }

// until is how long to sleep before the next poll: no longer than anything lasts that
// ends in between.
func (q *queue) until(pause time.Duration, f found) time.Duration {
	now := q.l.opts.Clock.Elapsed()
	d := pause/2 + q.l.jitter(pause)
	if q.ticket != nil {
		d = min(d, q.due()-now)
	}
	if q.refused(f) {
		d = min(d, q.left())
	}
	for _, e := range f.doubtful {
		d = min(d, e.since+e.ttl()-now)
	}
	return max(d, 10*time.Millisecond)
}

// refused reports whether waiting must be what clears the way: watching doesn't in time.
func (q *queue) refused(f found) bool {
	return len(f.live) > 0 || slices.ContainsFunc(f.doubtful, func(e *entry) bool {
		return e.since+e.ttl()-q.began > max(q.patience, maxWatch)
	})
}

// endures reports whether one who waits goes on after the store has failed: until it has
// done so for a ttl, in which nobody was seen in the way, or has refused something.
func (q *queue) endures(err error) bool {
	now := q.l.opts.Clock.Elapsed()
	if !q.waited || store.Permanent(err) || errors.Is(err, ErrFence) || q.left() <= 0 {
		return false
	}
	if q.failing == 0 {
		q.failing = now
	}
	return now-q.failing < q.l.opts.TTL
}

// tell tells what is in the way.
func (q *queue) tell(t *try, f found) {
	e := Event{
		Kind: EventWaiting, Mode: q.mode, Operation: q.operation, ID: t.id, Key: t.flag.key,
		Holders: merge(q.l.infos(slices.Concat(f.live, f.doubtful), f.st, f.now)), Waited: q.waitedFor(),
	}
	switch {
	case len(e.Holders) == 0:
		return
	case len(f.live) == 0:
		e.Kind = EventWatching
	}
	q.waited = true
	q.l.tell(e)
}

// held tells of those in our way, and is the error that says who they are.
func (q *queue) held(t *try, f found) error {
	return q.heldUntil(t, f, nil)
}

// heldUntil is held with why the wait ended early, if it did.
func (q *queue) heldUntil(t *try, f found, why error) error {
	err := q.l.heldError(t, f)
	err.Err = why
	if q.patience > 0 {
		err.Waited = q.waitedFor()
	}
	q.l.tell(Event{
		Kind: EventBlocked, Mode: q.mode, Operation: q.operation, ID: t.id, Key: t.flag.key, Holders: err.Holders, Waited: err.Waited, Err: why,
	})
	return err
}

// leave removes the ticket.
func (q *queue) leave(ctx context.Context) {
	if q.ticket != nil {
		q.l.withdraw(ctx, q.ticket, nil)
	}
}

// unchanged: it wasn't even refreshed.
func unchanged(e, before *entry) bool { return e.ETag == before.ETag && e.verdict == before.verdict }

// inTheWay are those in the way, by their keys.
func (f found) inTheWay() map[string]*entry {
	m := map[string]*entry{}
	for _, e := range slices.Concat(f.live, f.doubtful) {
		m[e.Key] = e
	}
	return m
}
