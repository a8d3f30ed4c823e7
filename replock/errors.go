package replock

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/repolock/repolock/internal/fault"
	"github.com/repolock/repolock/internal/text"
)

// Errors for errors.Is.
var (
	// ErrHeld is returned when another holder has a conflicting lock. The store has not failed. The error is a
	// *HeldError.
	ErrHeld error = fault.Held
	// ErrLost is returned when the lock is no longer held. The error is a *LostError.
	ErrLost error = fault.Lost
	// ErrReleased is the cause with which the context of a released lock ends.
	ErrReleased error = fault.Released
	// ErrUnsure is returned when the store answered, but the answers don't show whether another holder has the lock, or
	// came too late. The error has the reason.
	ErrUnsure error = fault.Unsure
	// ErrSlow is returned when the store is too slow for the ttl: three tries of a refresh don't fit before the
	// deadline. The error names a ttl that is long enough.
	ErrSlow error = fault.Slow
	// ErrNoFencingToken is returned when WithFencingToken was given, and the store can't count fencing tokens.
	ErrNoFencingToken error = fault.NoFence
)

// HeldError is returned when a lock is not acquired because of other locks. This acquire has
// removed its objects from the store. If the store couldn't be reached, they expire with the ttl.
type HeldError struct {
	// Mode is the mode that the caller requested.
	Mode Mode
	// Holders are the conflicting locks that were read. There is at least one.
	Holders []Info
	// More is a lower bound of the number of further conflicting locks.
	More int
	// Waited is how long the acquirer has waited.
	Waited time.Duration
	// Err is why the wait ended before its limit: the error of a context that has ended. Otherwise it is nil.
	Err error
}

// Error names the conflicting locks, and how long the acquirer waited.
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

// LostError is the reason why a lock is no longer held. Lock.Context ends with it as its cause, and
// Refresh, Check, Resume and Do return it.
type LostError struct {
	// Mode is the mode of the lost lock.
	Mode Mode
	// Key is the key of the object whose state showed the loss.
	Key string
	// Reason is a sentence for people.
	Reason string
	// Definite means that the lock can't be resumed: it was broken, or another holder has taken it,
	// or might have.
	Definite bool
	// Copied means that the objects belong to another process, which has continued with this lock because this machine
	// was cloned or restored while it ran. Release leaves them to that process.
	Copied bool
	// Err is the store's last error, or nil.
	Err error
}

// Error returns the reason, the store's last error and the key.
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

// errDoubt is the error of a look that found doubtful locks, and no other conflict.
var errDoubt = errors.New("perhaps stale")

// errUnlisted is returned when a listing had to show our flag and didn't. Either the lock was broken while we acquired
// it, or the store breaks the promise that safety rests on: a List shows every earlier Put.
var errUnlisted = unsure(errors.New("the store didn't list a lock that was just put"))

// errCopied is returned when an object of our attempt has a body that we never sent: a copy of this process continues
// with the attempt.
var errCopied = unsure(errors.New("another process continues with this attempt: was this machine cloned or restored?"))

// errLate is returned when the look that would have granted the lock was answered after the lease's deadline.
var errLate = unsure(errors.New("the store is too slow: acquiring the lock took longer than its lease"))

// errMightWithdraw is the error of a look that found a conflicting lock whose owner might be about to withdraw it.
var errMightWithdraw = errors.New("looking again")

// errStoodStill is errLate for a pause of this machine that only the store's clock shows.
var errStoodStill = fault.New(errLate, "this machine stood still while it acquired the lock, or the store's clock was set ahead")

// errUntried is the error of a request that we didn't send, because the store had failed at another lock.
var errUntried = errors.New("not tried, because the store failed at another lock")

// whyEnded returns the cause of a context's end, as an error that also matches ctx.Err.
func whyEnded(ctx context.Context) error {
	cause, err := context.Cause(ctx), ctx.Err()
	if errors.Is(cause, err) {
		return cause
	}
	return fault.As(err, cause)
}
