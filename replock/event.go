package replock

import (
	"context"
	"log/slog"
	"time"

	"github.com/repolock/repolock/internal/text"
)

// EventKind is the kind of an event.
type EventKind string

// The events of a lock's life.
const (
	// EventAcquired: the lock is held.
	EventAcquired EventKind = "acquired"
	// EventBlocked: the lock was not acquired because of Holders. Err is the reason for which
	// the wait ended early, if it did.
	EventBlocked EventKind = "blocked"
	// EventWaiting: the lock is not acquired yet because of Holders. It comes again when they
	// change or are refreshed.
	EventWaiting EventKind = "waiting"
	// EventWatching: Holders can be stale, and are watched.
	EventWatching EventKind = "watching"
	// EventReading: hundreds of locks that can be stale are being read; Done is how many were.
	// It comes again, at most twice a second.
	EventReading EventKind = "reading"
	// EventReaping: hundreds of stale locks are being removed, Done of Total so far. It comes
	// again, at most twice a second, and when all are done.
	EventReaping EventKind = "reaping"
	// EventReaped: the stale locks in Holders were removed. Of more than store.MaxBatch there
	// are several such events.
	EventReaped EventKind = "reaped"
	// EventRetrying: a request has failed, with Err, and is sent again for Left at most. It can
	// be a request of any method, and says nothing about a lock.
	EventRetrying EventKind = "retrying"
	// EventRefreshed: a refresh was answered.
	EventRefreshed EventKind = "refreshed"
	// EventRefreshFailed: a refresh was tried, and not answered, for a third of the time between
	// the first attempt and the deadline. Err is the last failure, and Failures their number in
	// a row.
	EventRefreshFailed EventKind = "refresh_failed"
	// EventGaveUp: the third such failure, at the deadline. EventLost follows.
	EventGaveUp EventKind = "gave_up"
	// EventLost: the lock is no longer held; Err is a *LostError.
	EventLost EventKind = "lost"
	// EventResumed: a lost lock is held again, under a new ID and Key.
	EventResumed EventKind = "resumed"
	// EventReleased: the lock was released.
	EventReleased EventKind = "released"
	// EventReleaseFailed: objects of the lock are left to expire. Err is the reason.
	EventReleaseFailed EventKind = "release_failed"
)

// Event is what Options.Observe receives.
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
	// Done and Total count the locks that EventReading and EventReaping are about.
	Done, Total int
	// Waited is the time since the lock was asked for, of events up to EventAcquired.
	Waited time.Duration
	// Held is how long the lock has been held, or was until its loss, since it was acquired or
	// resumed, on a clock that counts suspends.
	Held time.Duration
	// Left is the time until the lock is lost without another refresh, of EventRetrying the time
	// after which the request is given up at the latest. It is given up earlier if no other send
	// fits into that time.
	Left time.Duration
	Err  error
}

// levels are the levels at which events are logged. All others are logged at debug.
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

// event returns an event of a try.
func (t *try) event(kind EventKind) Event {
	return Event{Kind: kind, Mode: t.mode, Operation: t.operation, ID: t.id, Key: t.flag.key}
}

// tell passes an event on, in order, without waiting. A logger or an observer that blocks must
// not keep a lock from being refreshed, or from being given up in time.
func (l *Locker) tell(e Event) {
	e.Time, e.Name = l.opts.Clock.Now(), l.opts.Name
	l.events.Add(func() { l.pass(e) })
}

// Flush waits until the logger and the observer have got all events so far, or ctx has ended.
// It makes no request.
func (l *Locker) Flush(ctx context.Context) { l.events.Flush(ctx) }

// pass logs an event and passes it to the observer.
func (l *Locker) pass(e Event) {
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
