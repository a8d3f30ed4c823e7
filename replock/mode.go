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

// State is the stage of the lock that its body names: docs/evidence/protocol.md, The body of a lock. It is
// empty in locks of clients that don't follow that page.
type State string

// The states that this package writes.
const (
	// StateAcquiring: the lock wasn't refreshed yet. Its owner is acquiring it, or has held it for up to
	// half of the ttl (shared) or up to a second (exclusive).
	StateAcquiring State = State(wire.StateAcquiring)
	// StateWaiting: the ticket of a waiter. It grants nothing.
	StateWaiting State = State(wire.StateWaiting)
	// StateHeld: a holder has refreshed the lock at least once.
	StateHeld State = State(wire.StateHeld)
)

// Verdict is the judgement of a lock by a process that doesn't own it.
type Verdict int

const (
	// Live: its ttl isn't over by the store's clock, or by this machine's if the store has none; or it
	// was refreshed while it was watched.
	Live Verdict = Verdict(verdict.Live)
	// Stale: its ttl is over by two clocks, or it was watched for its whole ttl and didn't change.
	// The next acquirer that conflicts with it removes it.
	Stale Verdict = Verdict(verdict.Stale)
	// Doubtful: its ttl is over by one clock, and no second clock confirms that. It counts as held until
	// it has been watched for its whole ttl.
	Doubtful Verdict = Verdict(verdict.Doubtful)
	// Unreadable: its body can't be read or parsed. It counts as held until break-lock.
	Unreadable Verdict = Verdict(verdict.Unreadable)
	// Released: its body is empty. Its holder wasn't allowed to delete it.
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
