package replock

import (
	"fmt"
	"strings"
	"time"

	"github.com/repolock/repolock/internal/fault"
	"github.com/repolock/repolock/internal/text"
)

// Errors that errors.Is finds.
var (
	// ErrHeld: another holder has a conflicting lock. It is no failure of the store. Errors of
	// this kind are a *HeldError.
	ErrHeld error = fault.Held
	// ErrLost: the lock is no longer held. Errors of this kind are a *LostError.
	ErrLost error = fault.Lost
	// ErrReleased is the cause of the end of a released lock's context.
	ErrReleased error = fault.Released
	// ErrUnsure: the store was reached, but it could not be found out whether another holder has
	// the lock, or the store was too slow. The error says what went wrong.
	ErrUnsure error = fault.Unsure
	// ErrSlow: the store is too slow for the ttl. A refresh could not be tried three times
	// before the deadline. The error names a ttl that would do.
	ErrSlow error = fault.Slow
	// ErrFence: the option Fence was given, and the store cannot count fencing numbers.
	ErrFence error = fault.NoFence
)

// HeldError is returned when a lock is not acquired because of other locks. Nothing of this
// acquire is left in the store, or, if the store could not be reached, only until the ttl is
// over.
type HeldError struct {
	// Mode that was asked for.
	Mode Mode
	// Holders are the conflicting locks that were read, at least one.
	Holders []Info
	// More is a lower bound of the number of further ones.
	More int
	// Waited is how long the acquirer has waited.
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
		return fmt.Sprintf("repository is still locked after %s: %s", text.Duration(e.Waited), b.String())
	}
	return "repository is locked: " + b.String()
}

// Is makes errors.Is(err, ErrHeld) true.
func (e *HeldError) Is(target error) bool { return target == ErrHeld }

// Unwrap returns Err.
func (e *HeldError) Unwrap() error { return e.Err }

// LostError is the reason for which a lock is no longer held. It is the cause of the end of
// Lock.Context, and is returned by Renew, Check, Resume and Do.
type LostError struct {
	Mode Mode
	// Key is the key of the object that showed the loss.
	Key string
	// Reason is the reason in words.
	Reason string
	// Definite means that another holder was let in, or might have been: the lock cannot be
	// resumed.
	Definite bool
	// Err is the store's last error, if there was one.
	Err error
}

func (e *LostError) Error() string {
	s := fmt.Sprintf("%s lock lost: %s", e.Mode, e.Reason)
	if e.Err != nil {
		s += ": " + e.Err.Error()
	}
	if e.Key != "" {
		s += " (" + e.Key + ")"
	}
	return s
}

// Is makes errors.Is(err, ErrLost) true.
func (e *LostError) Is(target error) bool { return target == ErrLost }

// Unwrap returns the store's last error.
func (e *LostError) Unwrap() error { return e.Err }

func unsure(err error) error { return fault.As(fault.Unsure, err) }
