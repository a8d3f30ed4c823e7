// Package keeper is how a process that keeps something for a script, in the background, is
// started, found and asked. It knows nothing of what is kept.
//
// The process that starts a keeper is connected to it by two pipes until it has said that
// it has what it wanted: a keeper whose starter is gone before that has nobody to keep
// anything for. Afterwards a keeper is found by its token, which names a socket in a
// directory that is its user's alone, and lives until it is told to end, or until its
// owner has ended, the process that it is tied to.
package keeper

import "errors"

// Errors of Ask, the last also of Listen and Dir.
var (
	// ErrGone: nobody listens, or the keeper ended before it answered.
	ErrGone = errors.New("the lock has no keeper any more: it was released, or the process that it was for has ended, or its keeper was killed")
	// ErrSilent: it is there, and doesn't answer.
	ErrSilent = errors.New("the keeper doesn't answer")
	// ErrDir: there is no place for its socket, or none that is safe.
	ErrDir = errors.New("the directory for keepers' sockets")
)
