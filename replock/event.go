package replock

import (
	"log/slog"
	"time"
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
	// EventLost: the lock is no longer held. Err is a *LostError. A resume that fails for good reports the
	// loss again, with Definite set.
	EventLost EventKind = "lost"
	// EventResumed: a lost lock is held again, under a new ID and Key.
	EventResumed EventKind = "resumed"
	// EventReleased: the lock was released. It also follows EventLost, when a lost lock is released.
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
	// Ended is set on exactly one event of each lock that was acquired or resumed: on the EventLost,
	// EventReleased or EventReleaseFailed with which it stopped being held. So a gauge of held locks adds one at
	// EventAcquired and EventResumed, and subtracts one at each event with Ended.
	Ended bool
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
