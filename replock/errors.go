package replock

import (
	"errors"
	"fmt"
	"strings"
	"time"
)

// Errors that errors.Is finds.
var (
	// ErrHeld: somebody else holds a conflicting lock. It is no failure of the
	// store. See HeldError.
	ErrHeld = errors.New("held by somebody else")
	// ErrLost: the lock is no longer held. See LostError.
	ErrLost = errors.New("lock lost")
	// ErrReleased is why a lock's context ended, if it was released.
	ErrReleased = errors.New("lock released")
	// ErrUnsure: the store was reached, and it couldn't be found out whether somebody
	// holds the lock, or it was too slow. The error says what went wrong.
	ErrUnsure = errors.New("not sure whether the lock is held")
	// ErrSlow: the store is too slow for the ttl: a refresh could not be tried
	// three times before the deadline. A longer ttl helps; the error says which.
	ErrSlow = errors.New("store too slow for the ttl")
	// ErrFence: a fencing number was asked for and can't be had.
	ErrFence = errors.New("no fencing number")
)

// HeldError is returned when a lock isn't acquired because of others. Nothing
// of the acquirer is left in the store, or if that couldn't be reached, not for
// longer than its ttl.
type HeldError struct {
	// Mode that was asked for.
	Mode Mode
	// Holders that stand in its way: those that were looked at, at least one.
	Holders []Info
	// More is how many others there are at least.
	More int
	// Waited is how long the acquirer did.
	Waited time.Duration
	// Err is why it stopped waiting early: its context ended. It is nil otherwise.
	Err error
}

func (e *HeldError) Error() string {
	var b strings.Builder
	for i, h := range e.Holders {
		if i > 0 {
			b.WriteString("; ")
		}
		b.WriteString(h.String())
	}
	if e.More > 0 {
		fmt.Fprintf(&b, "; and at least %d more", e.More)
	}
	if e.Err != nil {
		fmt.Fprintf(&b, "; stopped waiting: %v", e.Err)
	}
	if e.Waited > 0 {
		return fmt.Sprintf("repository is still locked after %v: %s", e.Waited.Round(time.Second), b.String())
	}
	return "repository is locked: " + b.String()
}

// Is makes errors.Is(err, ErrHeld) true.
func (e *HeldError) Is(target error) bool { return target == ErrHeld }

// Unwrap returns Err.
func (e *HeldError) Unwrap() error { return e.Err }

// LostError says why a lock is no longer held. It is the cause of the end of
// Lock.Context, and returned by Check and Resume.
type LostError struct {
	Mode Mode
	// Key that told it.
	Key string
	// Reason in words.
	Reason string
	// Definite says that somebody else has been let in, or may have been: the
	// lock can't be resumed.
	Definite bool
	// Err is the store's last error, if there was one.
	Err error
}

func (e *LostError) Error() string {
	s := fmt.Sprintf("%s lock lost: %s: %s", e.Mode, e.Key, e.Reason)
	if e.Err != nil {
		s += ": " + e.Err.Error()
	}
	return s
}

// Is makes errors.Is(err, ErrLost) true.
func (e *LostError) Is(target error) bool { return target == ErrLost }

// Unwrap gives the store's last error.
func (e *LostError) Unwrap() error { return e.Err }

// unsure is an error that errors.Is takes for ErrUnsure.
type unsure struct{ error }

func (unsure) Is(target error) bool { return target == ErrUnsure }
func (e unsure) Unwrap() error      { return e.error }
