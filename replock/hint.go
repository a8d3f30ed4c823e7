package replock

import (
	"context"
	"errors"
	"maps"
	"time"

	"github.com/repolock/repolock/internal/clock"
	"github.com/repolock/repolock/store"
)

// hints let a waiter look before its next poll: docs/protocol.md, Wait. They decide nothing. Of
// the locks in the way one is the blocker. While that is stored, no look can find the way free.
// So a waiter reads it, when the store gives a hint or else again and again, and looks only if the
// blocker is gone. A read is cheaper than a look.
type hints struct {
	store  <-chan struct{} // from the store, or nil
	asked  bool            // the store was asked for them
	since  time.Duration   // when the locks in the way changed last
	budget budget
	gone   map[string]string // blockers that a read has shown to be gone: their ETags by key
}

// pace is how often a waiter reads the blocker: after a share of the time for which the same locks
// have been in its way, within bounds. The longer a lock has been held, the less likely is its end
// in the next second, and the less a delay counts. The zero value is never.
type pace struct {
	share       float64
	first, last time.Duration
}

// ownPace adds at most a hundredth to a wait of over 25 s. docs/benchmarks.md compares it to others.
var ownPace = pace{share: .01, first: 250 * time.Millisecond, last: 5 * time.Second}

func (p pace) after(waited time.Duration) time.Duration {
	return min(max(time.Duration(p.share*float64(waited)), p.first), p.last)
}

// budget bounds the reads: hintBurst at once, and hintRate per second. The own pace needs
// 100 ln 4 at once.
type budget struct {
	spent float64
	at    time.Duration // when it was
}

const (
	hintBurst = 150
	hintRate  = 1
)

// take spends one, and returns how long to wait before that.
func (b *budget) take(now time.Duration) time.Duration {
	b.spent = max(b.spent-(now-b.at).Seconds()*hintRate, 0) + 1
	b.at = now
	return time.Duration(max(b.spent-hintBurst, 0) / hintRate * float64(time.Second))
}

// watch asks the store for hints, once. It reports whether they have just begun: what was deleted
// before gave none.
func (q *queue) watch(ctx context.Context) (begun bool) {
	if q.hints.asked {
		return false
	}
	q.hints.asked, q.hints.gone = true, map[string]string{}
	var err error
	q.hints.store, err = store.Watch(ctx, q.l.store, q.l.keys.all())
	return err == nil
}

// sleep waits until the next poll, for d, or until a look is worthwhile before.
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

// untilRead returns the time to the next read of the blocker without a hint. A waiter behind others
// reads less often: its turn comes only after theirs.
func (q *queue) untilRead(b *entry, f findings) time.Duration {
	if b == nil || q.hints.store != nil || q.l.pace.first == 0 {
		return Forever
	}
	return q.l.jitter(q.l.pace.after(q.l.opts.Clock.Elapsed()-q.hints.since)) * time.Duration(1+f.before())
}

// before returns how many waiters come first.
func (f findings) before() (n int) {
	for _, e := range f.live {
		if e.isTicket() {
			n++
		}
	}
	return n
}

// blocker returns the lock in the way that is likely to be the last to go, or nil: the last of the
// tickets, or else the lock that came last. The pointer is chosen only if there is no flag, as there
// is none of a client of the original protocol. Whether its body can be understood doesn't matter. A
// key that a read has shown to be gone, and a listing hasn't, isn't chosen: a listing outweighs a read.
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

// isTicket reports whether the entry is a waiter's, and holds nothing. The pointer never is.
func (e *entry) isTicket() bool {
	return e.err == nil && e.lease.State == StateWaiting && (e.kind == kindIntent || e.kind == kindShared)
}

// isGone reports whether a read, within limit, shows that a lock in the way was released or has
// another lock in its place. A failure shows nothing.
func (q *queue) isGone(ctx context.Context, e *entry, limit time.Duration) bool {
	c, err := once(ctx, min(limit, q.l.times.Timeout), "get "+e.Key, q.l.fetch(e.Key))
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
