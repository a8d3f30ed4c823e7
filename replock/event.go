package replock

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/repolock/repolock/internal/text"
)

// EventKind is the kind of an event.
type EventKind string

// The kinds of events, in the order of a lock's life.
const (
	// EventAcquired: the lock is held.
	EventAcquired EventKind = "acquired"
	// EventBlocked: the lock was not acquired because of Holders. Err is the reason if the wait
	// ended early.
	EventBlocked EventKind = "blocked"
	// EventWaiting: the lock is not acquired yet because of Holders. The event is repeated when
	// they change or are refreshed.
	EventWaiting EventKind = "waiting"
	// EventWatching: Holders are doubtful, and are watched until they change or are stale.
	EventWatching EventKind = "watching"
	// EventReading: hundreds of locks are being read to find out whether they are stale. Done is
	// how many were read. The event is repeated at most twice a second.
	EventReading EventKind = "reading"
	// EventReaping: hundreds of stale locks are being removed, Done of Total so far. The event is
	// repeated at most twice a second, and when all are removed.
	EventReaping EventKind = "reaping"
	// EventReaped: the stale locks in Holders were removed. More than store.MaxBatch locks are
	// reported in several events.
	EventReaped EventKind = "reaped"
	// EventRetrying: a request has failed with Err, and is repeated for at most Left. It can be any
	// request. It doesn't mean that another holder has the lock, or that the lock is lost.
	EventRetrying EventKind = "retrying"
	// EventRefreshed: a refresh was answered.
	EventRefreshed EventKind = "refreshed"
	// EventRefreshFailed: a refresh was tried for a third of the time between half of the ttl and the
	// deadline, and wasn't answered. Err is the last failure, and Failures the number of such failures
	// in a row.
	EventRefreshFailed EventKind = "refresh_failed"
	// EventGaveUp: the third such failure, at the deadline. EventLost follows.
	EventGaveUp EventKind = "gave_up"
	// EventLost: the lock is no longer held. Err is a *LostError.
	EventLost EventKind = "lost"
	// EventResumed: a lost lock is held again, under a new ID and Key.
	EventResumed EventKind = "resumed"
	// EventReleased: the lock was released.
	EventReleased EventKind = "released"
	// EventReleaseFailed: objects of the lock couldn't be deleted, and are left to expire. Err is
	// the reason.
	EventReleaseFailed EventKind = "release_failed"
)

// Event is the argument of Options.Observe.
type Event struct {
	Kind      EventKind
	Time      time.Time // wall clock
	Name      string    // of the lock: Options.Name
	Mode      Mode
	Operation string
	ID        string
	Key       string
	Holders   []Info
	Failures  int
	// Done and Total are counts of locks, in EventReading and EventReaping.
	Done, Total int
	// Waited is the time since the acquire began, in events up to EventAcquired.
	Waited time.Duration
	// Held is the time since the lock was acquired or resumed, until now or until its loss, on a
	// clock that counts suspends.
	Held time.Duration
	// Left is the time until the deadline of the lease. In EventRetrying it is the time until repolock
	// gives up the request, at the latest.
	Left time.Duration
	Err  error
}

// levels are the levels at which events are logged. Other events are logged at debug.
var levels = map[EventKind]slog.Level{
	EventBlocked:       slog.LevelInfo,
	EventWatching:      slog.LevelWarn,
	EventReaped:        slog.LevelWarn,
	EventRefreshFailed: slog.LevelWarn,
	EventGaveUp:        slog.LevelError,
	EventLost:          slog.LevelError,
	EventResumed:       slog.LevelWarn,
	EventReleaseFailed: slog.LevelWarn,
}

// event returns an event of an attempt.
func (t *attempt) event(kind EventKind) Event {
	return Event{Kind: kind, Mode: t.mode, Operation: t.operation, ID: t.id, Key: t.flag.key}
}

// tell queues an event for the logger and the observer, in order, without waiting. If one of them
// blocks, the lock must still be refreshed, and given up in time.
func (l *Locker) tell(e Event) {
	e.Time, e.Name = l.opts.Clock.Now(), l.opts.Name
	l.events.Add(func() { l.deliver(e) })
}

// Flush waits until the logger and the observer have received all events so far, or until ctx ends.
// It makes no request.
func (l *Locker) Flush(ctx context.Context) { l.events.Flush(ctx) }

// deliver logs an event, and calls the observer with it.
func (l *Locker) deliver(e Event) {
	level, ok := levels[e.Kind]
	if !ok {
		level = slog.LevelDebug
	}
	attrs := []any{"mode", e.Mode, "operation", text.Brief(e.Operation), "id", e.ID, "key", e.Key}
	add := func(key string, known bool, value any) {
		if known {
			attrs = append(attrs, key, value)
		}
	}
	add("name", e.Name != "", e.Name)
	for _, h := range e.Holders {
		add("holder", true, h.String())
	}
	add("failures", e.Failures > 0, e.Failures)
	add("done", e.Done > 0, e.Done)
	add("total", e.Total > 0, e.Total)
	add("waited", e.Waited > 0, e.Waited)
	add("held", e.Held > 0, e.Held)
	add("left", e.Left > 0, e.Left)
	add("err", e.Err != nil, e.Err)
	l.opts.Logger.Log(context.Background(), level, "lock "+string(e.Kind), attrs...)
	if l.opts.Observe != nil {
		l.opts.Observe(e)
	}
}

// manyLocks is the least number of locks for which progress is reported, and progressPause the least
// time between two reports.
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

// errUntried is the result of a request that wasn't sent, because the store failed at another lock.
var errUntried = errors.New("not tried, because the store failed at another lock")
