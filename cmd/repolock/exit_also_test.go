package main

import (
	"fmt"
	"testing"

	"github.com/repolock/repolock/locking"
	"github.com/repolock/repolock/replock"
)

// TestLossOutranksItsReason: a lock that was lost because its server was silent is lost. A server
// that refused the lock has another code.
func TestLossOutranksItsReason(t *testing.T) {
	for _, why := range []error{locking.ErrUnreachable, locking.ErrPermission, locking.ErrUnfit} {
		lost := &replock.LostError{Mode: replock.Exclusive, Key: "redis://host", Reason: "it could not be renewed", Err: fmt.Errorf("no answer: %w", why)}
		name, code, _ := describe(fmt.Errorf("%w (the command: killed)", lost))
		if name != "lock_lost" || code != exitLost {
			t.Errorf("%v: %s, exit code %d", why, name, code)
		}
	}
	for why, want := range map[error]int{locking.ErrUnreachable: exitUnavailable, locking.ErrPermission: exitPermission, locking.ErrUnfit: exitUnfit, locking.ErrKey: exitUsage} {
		if _, code, _ := describe(fmt.Errorf("redis://host: %w", why)); code != want {
			t.Errorf("%v: exit code %d", why, code)
		}
	}
}
