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
	"github.com/repolock/repolock/store"
)

// AcquireOption is an option of one acquire.
type AcquireOption func(*queue)

// Wait makes Shared or Exclusive wait up to d for conflicting locks to be released. Waiters acquire the lock
// in the order in which they came, and before all later acquirers that they conflict with. Shared waiters
// that come together hold it together. A waiter polls every 1 to 10 s, with one list request. Behind other
// waiters it polls less often. Unless the store reports deletions (store.Watcher), it also reads one of the
// conflicting locks between the polls: every 250 ms at first, and less often the longer it waits.
//
// After d the acquire returns a *HeldError. If the store fails meanwhile, the waiter continues to poll for
// up to the ttl. If the acquire's context ends first while locks conflict, the error matches both ErrHeld
// and the context's error. A negative d is refused: Forever waits without an end.
func Wait(d time.Duration) AcquireOption { return func(q *queue) { q.maxWait = d } }

// Forever makes Wait wait without an end.
const Forever time.Duration = math.MaxInt64

// The first poll comes after 1 to 2 s. The longer nothing changes, the longer are the pauses, up to
// 5 to 10 s.
const (
	firstPoll = time.Second
	lastPoll  = 5 * time.Second
)

// maxWatch is how long an acquirer watches a doubtful lock if it doesn't wait, or waits for less:
// enough for a lock of the default ttl.
const maxWatch = 2 * time.Minute

// queue is one acquire, which waits if locks conflict: docs/evidence/protocol.md, Wait.
//
// A waiting acquirer leaves a ticket, a flag in the state "waiting". Later acquirers that conflict
// with it yield to it. When its turn seems to have come, the acquirer starts an attempt under another
// key. The lock can't be held under the ticket's own key: a put of the ticket that seemed lost can
// be applied at any time, and would mark a held lock as waiting.
type queue struct {
	l         *Locker
	mode      Mode
	operation string
	parent    context.Context // of the lock's context
	memory    memory
	own       ownAttempts
	maxWait   time.Duration
	fence     bool // whether an exclusive lock needs a fencing number
	began     time.Duration
	ticket    *attempt // nil until it waits
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

// newAttempt starts an attempt at the ticket's place in the queue.
func (q *queue) newAttempt() (*attempt, error) {
	t, err := q.l.newAttempt(q.mode, q.operation, q.own)
	if err != nil {
		return nil, err
	}
	q.own, t.trips, t.parent = t.ownAttempts, &q.trips, q.parent
	if q.ticket != nil {
		t.place, q.ticket.ownAttempts = q.ticket.place, t.ownAttempts
	}
	return t, nil
}

// wait returns nil when the conflicting locks of an attempt seem to be gone. Its last look grants
// nothing: the next attempt must look itself.
//
// wait also watches doubtful locks, even for an acquirer that doesn't wait. The watch ends when
// they change and so are live, when they are deleted, or when they are stale because they didn't
// change for their whole ttl. They count as held if that would take longer than the acquirer waits,
// and longer than maxWatch.
func (q *queue) wait(ctx context.Context, t *attempt, f findings) error {
	var was findings
	var before map[string]*entry
	pause := firstPoll
	for {
		if q.refused(f) && q.left() <= 0 {
			return q.held(t, f, nil)
		}
		now := f.conflicts()
		if !maps.EqualFunc(now, before, func(e, was *entry) bool { return e.ETag == was.ETag && e.verdict == was.verdict }) {
			q.tell(t, f) // at least one of them was refreshed
		}
		if maps.EqualFunc(now, before, func(*entry, *entry) bool { return true }) { // the same keys
			pause = min(pause*5/4, lastPoll)
		} else {
			pause, q.hints.since = firstPoll, q.l.opts.Clock.Elapsed()
		}
		was, before = f, now
		at, err := q.keepTicket(ctx, t)
		if serr := q.sleep(ctx, q.untilPoll(pause, f), f); serr == nil && err == nil {
			f, err = q.l.look(ctx, at, q.memory)
		}
		if ctx.Err() != nil {
			return q.ended(ctx, t, was)
		}
		if f.unlisted || errors.Is(err, errUnlisted) {
			at.flag.put = false // the ticket was broken, and must be put again before the conflicts end
		}
		switch next := q.again.afterPoll(t, f, err, q.waits()); next.step {
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

// keepTicket keeps the ticket live, and returns the attempt for which the polls look: the ticket,
// or the last attempt of an acquirer that only watches doubtful locks.
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

// decidesBy returns when an attempt that outlasts others must end: before its lease ends, and
// before the ticket must be refreshed.
func (q *queue) decidesBy(t *attempt) time.Duration {
	by := t.deadline - q.l.times.Timeout
	if q.ticket != nil {
		by = min(by, q.refreshAt())
	}
	return by
}

// untilPoll returns the time until the next poll. The poll comes early if the ticket must be refreshed, if
// the wait ends, if the ttl of a doubtful lock ends, or if all live locks become stale unless they are
// refreshed. The more waiters come before this one, the longer the time is.
func (q *queue) untilPoll(pause time.Duration, f findings) time.Duration {
	now := q.l.opts.Clock.Elapsed()
	d := pause/2 + q.l.jitter(pause)
	d = min(d*time.Duration(1+f.before()), 2*d+lastPoll)
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
func (q *queue) tell(t *attempt, f findings) {
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
func (q *queue) held(t *attempt, f findings, why error) error {
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

// hints let a waiter look before its next poll: docs/evidence/protocol.md, Wait. They decide nothing. One of
// the conflicting locks is the blocker. While the blocker is stored, each look finds a conflict. So a waiter
// reads the blocker, at each hint of the store or else as often as pace allows, and looks only if the
// blocker is gone. A read is cheaper than a look.
type hints struct {
	store  <-chan struct{} // hints of the store, or nil
	asked  bool            // whether the store was asked for hints
	since  time.Duration   // when the keys of the conflicting locks last changed
	budget budget
	gone   map[string]string // blockers that a read didn't find: their ETags by key
}

// pace is how often a waiter reads the blocker: after a share of the time for which the same locks
// have conflicted, within bounds. The longer a lock has been held, the less likely it ends within
// the next second, and the less a delay matters. The zero value means never.
type pace struct {
	share       float64
	first, last time.Duration
}

// ownPace adds about a hundredth to a wait of over 25 s. docs/evidence/benchmarks.md compares other paces.
var ownPace = pace{share: .01, first: 250 * time.Millisecond, last: 5 * time.Second}

func (p pace) after(waited time.Duration) time.Duration {
	return min(max(time.Duration(p.share*float64(waited)), p.first), p.last)
}

// budget bounds the reads: hintBurst at once, and hintRate per second. ownPace alone stays within it: after
// 100 s it has spent about 139 of hintBurst, and from then on it reads less often than hintRate.
type budget struct {
	spent float64
	at    time.Duration // when spent was updated
}

const (
	hintBurst = 150
	hintRate  = 1
)

// take spends one read, and returns the pause that must come before it.
func (b *budget) take(now time.Duration) time.Duration {
	b.spent = max(b.spent-(now-b.at).Seconds()*hintRate, 0) + 1
	b.at = now
	return time.Duration(max(b.spent-hintBurst, 0) / hintRate * float64(time.Second))
}

// watch asks the store for hints, at the first call. It reports whether the hints have just begun. Then the
// caller must look for a deletion that came before them.
func (q *queue) watch(ctx context.Context) (begun bool) {
	if q.hints.asked {
		return false
	}
	q.hints.asked, q.hints.gone = true, map[string]string{}
	var err error
	q.hints.store, err = store.Watch(ctx, q.l.store, q.l.keys.all())
	return err == nil
}

// sleep waits until the next poll, for d, or until the blocker is gone.
func (q *queue) sleep(ctx context.Context, d time.Duration, f findings) error {
	c := q.l.opts.Clock
	end := c.Elapsed() + d
	hinted := q.watch(ctx)
	blocking := f.conflicts()
	maps.DeleteFunc(q.hints.gone, func(key, etag string) bool { return blocking[key] == nil || blocking[key].ETag != etag })
	b := f.blocker(q.hints.gone)
	for {
		if hinted {
			pause := q.hints.budget.take(c.Elapsed())
			if err := clock.Sleep(ctx, c, min(pause, end-c.Elapsed())); err != nil {
				return err
			}
			if b == nil || q.isGone(ctx, b, end-c.Elapsed()) {
				return ctx.Err()
			}
		}
		var err error
		left := end - c.Elapsed()
		next := min(left, q.untilRead(b, f))
		if hinted, err = clock.SleepUntil(ctx, c, next, q.hints.store); err != nil {
			return err
		}
		if !hinted && next == left {
			return nil
		}
		hinted = true
	}
}

// untilRead returns the time to the next read of the blocker without a hint. The more waiters are before
// this one, the less often it reads, because they acquire first.
func (q *queue) untilRead(b *entry, f findings) time.Duration {
	if b == nil || q.hints.store != nil || q.l.pace.first == 0 {
		return Forever
	}
	n := 1 + f.before()
	return q.l.jitter(q.l.pace.after(q.l.opts.Clock.Elapsed()-q.hints.since)) * time.Duration(n*n)
}

// before returns the number of waiters before this one.
func (f findings) before() (n int) {
	for _, e := range f.live {
		if e.isTicket() {
			n++
		}
	}
	return n
}

// blocker returns the conflicting lock that is likely to be released last, or nil: the last of the tickets,
// or else the last lock. It returns lock.exclusive only if there is no flag, as with clients of the original
// protocol. The blocker's body needn't be readable. gone has the keys that a read didn't find. If a listing
// still shows such a key, the listing is right, and blocker chooses another one.
func (f findings) blocker(gone map[string]string) *entry {
	var b *entry
	for _, e := range f.conflicts() {
		if _, gone := gone[e.Key]; !gone && (b == nil || e.goesAfter(b)) {
			b = e
		}
	}
	return b
}

func (e *entry) goesAfter(b *entry) bool {
	if e.isTicket() != b.isTicket() {
		return e.isTicket()
	}
	return e.Key > b.Key
}

// isTicket reports whether the entry is a waiter's ticket, which grants nothing. lock.exclusive
// never is one.
func (e *entry) isTicket() bool {
	return e.err == nil && e.lease.State == StateWaiting && (e.kind == kindIntent || e.kind == kindShared)
}

// isGone reports whether a read, within limit, shows that a conflicting lock was released or
// replaced by another one. A read that fails shows nothing.
func (q *queue) isGone(ctx context.Context, e *entry, limit time.Duration) bool {
	c, err := once(ctx, "get "+e.Key, q.l.fetch(e.Key))(min(limit, q.l.times.Timeout))
	gone := errors.Is(err, store.ErrNotFound)
	if err == nil {
		now, err := decode(c.raw)
		gone = errors.Is(err, errReleased) || err == nil && now.ID != e.lease.ID
	}
	if gone {
		q.hints.gone[e.Key] = e.ETag
	}
	return gone
}

// Parent makes parent the parent of the lock's context, in place of the acquire's context. The
// lock's context has parent's values and ends with it. The end of parent also ends the acquire. The
// lock itself is held until Release.
func Parent(parent context.Context) AcquireOption {
	return func(q *queue) { q.parent = parent }
}

// ended returns the error of an acquire whose context has ended. It names the conflicting locks of
// the last look.
func (q *queue) ended(ctx context.Context, t *attempt, f findings) error {
	why := whyEnded(ctx)
	if f.live = slices.Concat(f.live, f.doubtful); len(f.live) > 0 {
		return q.held(t, f, why)
	}
	return fault.While(fmt.Sprintf("acquiring the %s lock", q.mode), why)
}

// whyEnded returns the cause of a context's end. The error also matches ctx.Err.
func whyEnded(ctx context.Context) error {
	cause, err := context.Cause(ctx), ctx.Err()
	if errors.Is(cause, err) {
		return cause
	}
	return fault.As(err, cause)
}
