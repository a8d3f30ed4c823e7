package main

import (
	"strings"
	"testing"
	"time"

	"github.com/repolock/repolock/cmd/internal/session"
	"github.com/repolock/repolock/replock"
)

// TestWaiterIsNoHolder: a refusal counts and names holders, and waiters apart. In JSON held_by is a
// holder if there is one, and status is what the table shows.
func TestWaiterIsNoHolder(t *testing.T) {
	waiter := aLock(replock.Exclusive, "prune", "web2 (pid 9)", "root", "0a", time.Minute, 0)
	waiter.State = replock.StateWaiting
	holder := aLock(replock.Shared, "backup", "web1 (pid 7)", "root", "7b", time.Minute, 0)
	refused := func(locks ...replock.Info) jsonError {
		return newJSONError(&reporter{}, session.HeldError{HeldError: &replock.HeldError{Mode: replock.Exclusive, Holders: locks}, Place: session.Place{Repo: "s3://b"}})
	}
	for want, out := range map[string]jsonError{
		"repository s3://b is locked by backup on web1 (pid 7, root) for 1m, last seen 0s ago; 1 other waits":             refused(waiter, holder),
		"repository s3://b is locked by 2: backup on web1 (pid 7, root) for 1m, last seen 0s ago; backup on web1 (pid 7,": refused(waiter, holder, waiter, holder),
		"repository s3://b is reserved for prune on web2 (pid 9, root), waiting for 1m, last seen 0s ago":                 refused(waiter),
	} {
		if !strings.HasPrefix(out.Summary, want) {
			t.Errorf("%q isn't %q", out.Summary, want)
		}
		if first := out.Holders[0]; out.HeldBy.ID != first.ID || len(out.Holders) > 1 && (first.ID != "7b" || first.Status != "live") {
			t.Errorf("held by %+v, holders %+v", out.HeldBy, out.Holders)
		}
		if last := out.Holders[len(out.Holders)-1]; last.ID != "0a" || last.Status != "waiting" || last.Verdict != "live" {
			t.Errorf("the waiter is %+v", last)
		}
	}
	if says := refused(waiter, holder, waiter).Summary; !strings.HasSuffix(says, "; 2 others wait") {
		t.Errorf("%q", says)
	}
}
