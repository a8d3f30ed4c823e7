package replock

import (
	"fmt"

	"github.com/repolock/repolock/replock/internal/verdict"
	"github.com/repolock/repolock/replock/internal/wire"
)

// Mode is shared or exclusive.
type Mode int

const (
	// Shared locks can be held side by side: backup, restore.
	Shared Mode = iota + 1
	// An Exclusive lock is held alone: prune.
	Exclusive
)

// String returns "shared" or "exclusive".
func (m Mode) String() string {
	words := [...]string{Shared: "shared", Exclusive: "exclusive"}
	if m < Shared || m > Exclusive {
		return fmt.Sprintf("Mode(%d)", int(m))
	}
	return words[m]
}

// MarshalText returns String.
func (m Mode) MarshalText() ([]byte, error) { return []byte(m.String()), nil }

// State is the stage of a lock, as its body names it: docs/evidence/protocol.md, The body of a lock. It is empty in
// locks of clients that don't follow that page.
type State string

// The states that this package writes.
const (
	// StateAcquiring: the lock wasn't refreshed yet. Its owner is acquiring it, or already holds it: for up to half of
	// the ttl (shared) or a second (exclusive).
	StateAcquiring State = State(wire.StateAcquiring)
	// StateWaiting: the object is the ticket of a waiter. It grants nothing.
	StateWaiting State = State(wire.StateWaiting)
	// StateHeld: a holder has refreshed the lock at least once.
	StateHeld State = State(wire.StateHeld)
)

// Verdict is how a process that doesn't own a lock judges it.
type Verdict int

const (
	// Live: the lock is held. Its ttl isn't over by the store's clock, or by this machine's clock if the store has
	// none. Or it was refreshed while we watched it.
	Live Verdict = Verdict(verdict.Live)
	// Stale: the holder is gone. The lock's ttl is over by two clocks, or we watched the lock for its whole ttl and it
	// didn't change. The next acquirer that conflicts with it removes it.
	Stale Verdict = Verdict(verdict.Stale)
	// Doubtful: the lock's ttl is over by one clock, and no second clock confirms that. It counts as held until
	// an acquirer has watched it for its whole ttl.
	Doubtful Verdict = Verdict(verdict.Doubtful)
	// Unreadable: the lock's body can't be read or parsed. It counts as held until break-lock removes it.
	Unreadable Verdict = Verdict(verdict.Unreadable)
	// Released: the lock's body is empty. Its holder has released it, but wasn't allowed to delete it.
	Released Verdict = Verdict(verdict.Released)
)

// String returns the verdict in lower case.
func (v Verdict) String() string {
	words := [...]string{Live: "live", Stale: "stale", Doubtful: "doubtful", Unreadable: "unreadable", Released: "released"}
	if v < Live || v > Released {
		return fmt.Sprintf("Verdict(%d)", int(v))
	}
	return words[v]
}

// MarshalText returns String.
func (v Verdict) MarshalText() ([]byte, error) { return []byte(v.String()), nil }
