package replock

import (
	"log/slog"
	"time"
)

// EventKind is the kind of an event.
type EventKind string

// The kinds of events, in the order of a lock's life.
const (
	// EventAcquired: the lock is held from now on.
	EventAcquired EventKind = "acquired"
	// EventBlocked: the acquire failed because of the conflicting locks in Holders. Err is set if the wait ended early.
	EventBlocked EventKind = "blocked"
	// EventWaiting: the acquirer waits for the conflicting locks in Holders. The event is repeated when they change or
	// are refreshed.
	EventWaiting EventKind = "waiting"
	// EventWatching: the acquirer watches the doubtful locks in Holders until they change or become stale.
	EventWatching EventKind = "watching"
	// EventReading: the acquirer reads hundreds of locks to find out whether they are stale. Done is the number of
	// locks read so far. The event is repeated at most twice a second.
	EventReading EventKind = "reading"
	// EventReaping: the acquirer removes hundreds of stale locks. It has removed Done of Total so far. The event is
	// repeated at most twice a second, and once more at the end.
	EventReaping EventKind = "reaping"
	// EventReaped: the acquirer has removed the stale locks in Holders. If there are more than store.MaxBatch, several
	// events report them.
	EventReaped EventKind = "reaped"
	// EventRetrying: a request has failed with Err, and is repeated for at most Left. It can be any request. The event
	// doesn't mean that another holder has the lock, or that the lock is lost.
	EventRetrying EventKind = "retrying"
	// EventRefreshed: the store has answered a refresh.
	EventRefreshed EventKind = "refreshed"
	// EventRefreshFailed: a refresh had no answer within a third of the time from half of the ttl to the deadline. Err
	// is the last failure, and Failures the number of such events in a row. With a ttl of minutes such a third is long, so
	// the event also comes once after 30 s without an answer, with Failures 0.
	EventRefreshFailed EventKind = "refresh_failed"
	// EventGaveUp: the third EventRefreshFailed in a row came, at the deadline. EventLost follows.
	EventGaveUp EventKind = "gave_up"
	// EventLost: the lock is no longer held. Err is a *LostError. If a Resume then fails for good, the event is
	// repeated with Definite set.
	EventLost EventKind = "lost"
	// EventResumed: a lost lock is held again, under a new ID and Key.
	EventResumed EventKind = "resumed"
	// EventReleased: the lock was released. It follows EventLost too, if the program releases a lost lock.
	EventReleased EventKind = "released"
	// EventReleaseFailed: objects of the lock couldn't be deleted. They expire with the ttl. Err is the reason.
	EventReleaseFailed EventKind = "release_failed"
)

// Event is the argument of Options.Observe.
type Event struct {
	Kind EventKind // what happened
	Time time.Time // wall clock
	Name string    // Options.Name of the Locker
	// Mode, Operation, ID and Key are the Lock's. In events up to EventAcquired, ID and Key are the present attempt's.
	// All are empty in EventRetrying.
	Mode      Mode
	Operation string
	ID        string
	Key       string
	Holders   []Info // locks of other clients; EventKind explains which
	Failures  int    // in a row, in EventRefreshFailed and EventGaveUp
	// Done and Total are the numbers of locks in EventReading and EventReaping.
	Done, Total int
	// Waited is the time since the acquire began. It is set in events up to EventAcquired.
	Waited time.Duration
	// Held is how long the lock has been held since it was acquired or resumed. It ends with the loss. Time counts
	// while the machine is suspended.
	Held time.Duration
	// Left is the time until the deadline of the lease. In EventRetrying it is how long repolock repeats the request at
	// most.
	Left time.Duration
	// Err is the reason of an event that reports a failure, or nil.
	Err error
	// Ended is set on exactly one event for each lock that was acquired or resumed: the EventLost, EventReleased or
	// EventReleaseFailed at which it stopped being held. To count held locks, add one at EventAcquired and
	// EventResumed, and subtract one at each event with Ended.
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
