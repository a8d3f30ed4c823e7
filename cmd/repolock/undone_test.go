package main

import (
	"fmt"
	"strings"
	"syscall"
	"testing"

	"github.com/repolock/repolock/cmd/internal/session"
	"github.com/repolock/repolock/replock"
	"github.com/repolock/repolock/store"
)

// TestSaysWhatWasNotDone: a failure before the command says that the command wasn't run, or that no
// lock was taken. A lost lock, and a failure of another command, don't.
func TestSaysWhatWasNotDone(t *testing.T) {
	for command, undone := range map[string]string{"backup": "nothing was run", "prune": "nothing was run", "acquire": "no lock was taken", "status": "", "break-lock": ""} {
		for _, err := range []error{
			store.ErrUnreachable, store.ErrNoHost, store.ErrPermission, store.ErrNotFound, store.ErrConfig, store.ErrFull, fmt.Errorf("500"), session.SignalError{Signal: syscall.SIGINT},
		} {
			out := newJSONError(&reporter{command: command}, session.NotAcquiredError{Err: err})
			says := out.words(false) + "; " + out.Suggestion
			if n := strings.Count(says, undone); undone != "" && n != 1 || undone == "" && strings.Contains(says, "no lock was") {
				t.Errorf("%s, %v: %q", command, err, says)
			}
		}
		out := newJSONError(&reporter{command: command}, &replock.LostError{Key: "k", Reason: "it was deleted"})
		if says := out.words(false) + out.Suggestion; strings.Contains(says, "nothing was") || strings.Contains(says, "no lock was") {
			t.Errorf("%s: %q", command, says)
		}
	}
}

// TestUnreachableHint: a store that doesn't answer has a hint, which names --if-unreachable only
// where it helps.
func TestUnreachableHint(t *testing.T) {
	silent := fmt.Errorf("h: %w", store.ErrUnreachable)
	for command, c := range map[string]struct{ doctor, unlocked bool }{"backup": {true, true}, "prune": {true, false}, "status": {true, false}, "doctor": {false, false}} {
		hint := newJSONError(&reporter{command: command}, session.NotAcquiredError{Err: silent}).Suggestion
		if strings.Contains(hint, "repolock doctor") != c.doctor || strings.Contains(hint, "--if-unreachable run") != c.unlocked {
			t.Errorf("%s: %q", command, hint)
		}
	}
	if hint := newJSONError(&reporter{command: "backup"}, session.NotAcquiredError{Err: silent, Answered: true}).Suggestion; strings.Contains(hint, "--if-unreachable") {
		t.Errorf("it has answered: %q", hint)
	}
}
