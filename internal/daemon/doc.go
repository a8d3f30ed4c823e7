// Package daemon starts, finds and asks a keeper: a background process that keeps something
// for a script. It knows nothing of what is kept.
//
// Two pipes connect the starter of a keeper to it until the starter accepts it. A keeper
// whose starter ends before that must end as well. Afterwards a client finds the keeper by
// its token, which names a socket in a directory of its user alone. The keeper lives until a
// client ends it, or until its owner ends, the process that it is tied to.
package daemon

import "github.com/repolock/repolock/internal/fault"

// Errors of Ask, the last also of Listen.
var (
	// ErrGone is returned when no keeper listens, or the keeper ended before it answered.
	ErrGone error = fault.KeeperGone
	// ErrSilent is returned when the keeper is there and doesn't answer.
	ErrSilent error = fault.KeeperSilent
	// ErrDir is returned when there is no directory for its socket, or no safe one.
	ErrDir error = fault.NoSocket
)
