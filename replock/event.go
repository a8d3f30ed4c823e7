package replock

import (
	"context"
	"log/slog"
	"time"
)

// EventKind says what happened.
type EventKind string

// The events of a lock's life.
const (
	// EventAcquired: the lock is held.
	EventAcquired EventKind = "acquired"
	// EventBlocked: it isn't, because of Holders. Err says why the wait for them ended
	// early, if it did.
	EventBlocked EventKind = "blocked"
	// EventWaiting: it isn't yet, because of Holders. It is told when they change,
	// or refresh their locks.
	EventWaiting EventKind = "waiting"
	// EventWatching: Holders may be stale, and are watched.
	EventWatching EventKind = "watching"
	// EventReaped: the stale locks in Holders were removed.
	EventReaped EventKind = "reaped"
	// EventRefreshed: a refresh was answered.
	EventRefreshed EventKind = "refreshed"
	// EventRefreshFailed: it was tried for a third of the time between the first
	// attempt and the deadline and never answered. Err says why, and Failures
	// how often in a row.
	EventRefreshFailed EventKind = "refresh_failed"
	// EventGaveUp: that was so for the third time, at the deadline. EventLost
	// follows.
	EventGaveUp EventKind = "gave_up"
	// EventLost: the lock is no longer held; Err is a *LostError.
	EventLost EventKind = "lost"
	// EventResumed: it is held again.
	EventResumed EventKind = "resumed"
	// EventReleased: it was released.
	EventReleased EventKind = "released"
	// EventReleaseFailed: its objects are left to expire; Err says why.
	EventReleaseFailed EventKind = "release_failed"
)

// Event is what Options.Observe is told.
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
	// Waited since the lock was asked for: told of waiting, and when it is acquired.
	Waited time.Duration
	// Held is how long the lock has been held, since it was acquired or resumed, on a clock
	// that counts suspend: up to its loss, if it was lost.
	Held time.Duration
	// Left until the lock is lost without another refresh.
	Left time.Duration
	Err  error
}

// levels at which events are logged; what isn't here is logged at debug.
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

// tell passes an event on, in order, without waiting: a logger or an observer that
// blocks must not keep a lock from being refreshed, or from being given up in
// time.
func (l *Locker) tell(e Event) {
	e.Time, e.Name = l.opts.Clock.Now(), l.opts.Name
	l.Later(func() { l.pass(e) })
}

// Flush waits until the logger and the observer have been told of all events so
// far, or ctx has ended.
func (l *Locker) Flush(ctx context.Context) {
	told := make(chan struct{})
	l.Later(func() { close(told) })
	select {
	case <-told:
	case <-ctx.Done():
	}
}

// Later calls f once the logger and the observer have been told of all events so far, and
// before they are told of another, without waiting: for what else is to be told in order.
func (l *Locker) Later(f func()) {
	l.tellMu.Lock()
	defer l.tellMu.Unlock()
	l.untold = append(l.untold, f)
	if !l.telling {
		l.telling = true
		go l.tellAll()
	}
}

func (l *Locker) tellAll() {
	for {
		l.tellMu.Lock()
		untold := l.untold
		l.untold = nil
		l.telling = len(untold) > 0
		l.tellMu.Unlock()
		if len(untold) == 0 {
			return
		}
		for _, f := range untold {
			f()
		}
	}
}

// pass logs an event and passes it to the observer.
func (l *Locker) pass(e Event) {
	level, ok := levels[e.Kind]
	if !ok {
		level = slog.LevelDebug
	}
	attrs := []any{"mode", e.Mode, "operation", Printable(e.Operation), "id", e.ID, "key", e.Key}
	if e.Name != "" {
		attrs = append(attrs, "name", e.Name)
	}
	for _, h := range e.Holders {
		attrs = append(attrs, "holder", h.String())
	}
	if e.Failures > 0 {
		attrs = append(attrs, "failures", e.Failures)
	}
	if e.Waited > 0 {
		attrs = append(attrs, "waited", e.Waited)
	}
	if e.Held > 0 {
		attrs = append(attrs, "held", e.Held)
	}
	if e.Left > 0 {
		attrs = append(attrs, "left", e.Left)
	}
	if e.Err != nil {
		attrs = append(attrs, "err", e.Err)
	}
	l.opts.Logger.Log(context.Background(), level, "lock "+string(e.Kind), attrs...)
	if l.opts.Observe != nil {
		l.opts.Observe(e)
	}
}
