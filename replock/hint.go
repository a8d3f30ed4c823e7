package replock

import (
	"context"
	"errors"
	"maps"
	"time"

	"github.com/repolock/repolock/internal/clock"
	"github.com/repolock/repolock/store"
)

// hints let a waiter look before its next poll: docs/protocol.md, Wait. They decide nothing. One of
// the conflicting locks is the blocker. While the blocker is stored, each look finds a conflict. So
// a waiter reads the blocker, at each hint of the store or else again and again, and looks only if
// the blocker is gone. A read is cheaper than a look.
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

// ownPace adds at most a hundredth to a wait of over 25 s. docs/benchmarks.md compares other paces.
var ownPace = pace{share: .01, first: 250 * time.Millisecond, last: 5 * time.Second}

func (p pace) after(waited time.Duration) time.Duration {
	return min(max(time.Duration(p.share*float64(waited)), p.first), p.last)
}

// budget bounds the reads: hintBurst at once, and hintRate per second. ownPace reads 100 ln 4 times
// in its first seconds.
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

// watch asks the store for hints, at the first call. It reports whether the hints have just begun.
// Then a deletion that came before them must be looked for.
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
	blocking := f.inTheWay()
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

// untilRead returns the time to the next read of the blocker without a hint. A waiter behind other
// waiters reads less often, because they come first.
func (q *queue) untilRead(b *entry, f findings) time.Duration {
	if b == nil || q.hints.store != nil || q.l.pace.first == 0 {
		return Forever
	}
	return q.l.jitter(q.l.pace.after(q.l.opts.Clock.Elapsed()-q.hints.since)) * time.Duration(1+f.before())
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

// blocker returns the conflicting lock that is likely to be the last to go, or nil: the last of the
// tickets, or else the lock that came last. It returns lock.exclusive only if there is no flag, as
// with clients of the original protocol. A body that can't be parsed makes no difference. If a read
// didn't find a key and a listing shows it still, the listing is right, and that key isn't chosen.
func (f findings) blocker(gone map[string]string) *entry {
	var b *entry
	for _, e := range f.inTheWay() {
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
