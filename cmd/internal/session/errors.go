package session

import (
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"

	"github.com/repolock/repolock/internal/fault"
	"github.com/repolock/repolock/internal/text"
	"github.com/repolock/repolock/replock"
)

// Signalled returns the error of an acquire, or of a keeper, that a signal has ended. It has the exit code that a shell
// uses.
func Signalled(sig os.Signal) error {
	s := sig.(syscall.Signal)
	says := s.String()
	if s == syscall.SIGINT {
		says = "interrupted"
	}
	return &fault.Error{Class: fault.Interrupted, Err: errors.New(says), Exit: fault.ExitSignal + int(s)}
}

// SignalOf returns the signal of an error that Signalled made.
func SignalOf(err error) (sig syscall.Signal, ok bool) {
	if !errors.Is(err, fault.Interrupted) {
		return 0, false
	}
	return syscall.Signal(fault.Exit(err) - fault.ExitSignal), true
}

// HeldError is a replock.HeldError with the place of the lock.
type HeldError struct {
	*replock.HeldError
	Place Place
	// Own is set if this process runs under the lock that blocks it: the wait would never end.
	Own      bool
	ExitCode int // Request.HeldCode
}

// Error names the place of the lock, and describes its holders.
func (e HeldError) Error() string {
	if e.Place.other() {
		return e.other()
	}
	return e.HeldError.Error() + "; " + e.Place.Looked()
}

// other is the text for another system's lock. Such a lock has one holder, perhaps without a ttl.
func (e HeldError) other() string {
	says := e.Place.URL + " is held"
	if e.Waited >= time.Second/2 {
		says = fmt.Sprintf("%s is still held after %s", e.Place.URL, text.Duration(e.Waited))
	}
	if len(e.Holders) == 0 {
		return says
	}
	h := e.Holders[0]
	if h.Verdict == replock.Unreadable {
		return fmt.Sprintf("%s: it can't be read (%s)", says, text.Brief(h.Why))
	}
	says += " by " + text.Or(h.Holder, "a holder that doesn't say its name")
	if !h.Acquired.IsZero() {
		says += ", since " + h.Acquired.UTC().Format(time.RFC3339)
	}
	switch {
	case h.Holder != "" && h.Why != "":
		says += "; " + text.Brief(h.Why)
	case h.ProcessGone:
		says += "; that process is gone"
	case h.Verdict == replock.Stale:
		says += "; it is stale"
	case h.TTL > 0:
		says += fmt.Sprintf("; it expires in %s unless refreshed", text.Duration(h.Left))
	}
	if e.Err != nil {
		says += "; stopped waiting: " + e.Err.Error()
	}
	return says
}

// Unwrap returns the replock.HeldError.
func (e HeldError) Unwrap() error { return e.HeldError }

// NotAcquired adds to an error that the lock wasn't acquired, and the command not started. answered reports
// whether the store has answered a request.
func NotAcquired(err error, answered bool) error {
	if answered {
		return fault.As(fault.NotAcquired, err)
	}
	return fault.As(fault.Unanswered, err)
}

var (
	// errAbandoned ends a keeper whose acquire has ended first.
	errAbandoned = errors.New("acquire ended before it printed the lock")
	// errOwn ends a wait that would never end: HeldError.Own.
	errOwn = errors.New("this command runs under the lock that blocks it")
)
