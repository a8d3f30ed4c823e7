package session

import (
	"errors"

	"github.com/repolock/repolock/internal/fault"
	"github.com/repolock/repolock/replock"
	"github.com/repolock/repolock/store"
)

// Policy says what happens to a command whose lock can't be acquired. A scheduler runs the
// command again later.
type Policy struct {
	IfHeld        string // fail, skip or wait
	IfUnreachable string // fail or run
	Hint          string // require-global, prefer-global or node-local, in place of the two
}

// Settle replaces the hint by what it means.
func (p *Policy) Settle(mode replock.Mode) error {
	if p.Hint != "" && (p.IfHeld != "" || p.IfUnreachable != "") {
		return errors.New("--hint says what --if-held and --if-unreachable say: give either")
	}
	switch p.Hint {
	case "require-global":
		p.IfHeld = "skip"
	case "prefer-global":
		p.IfHeld, p.IfUnreachable = "skip", "run"
	}
	if mode == replock.Exclusive && (p.IfUnreachable == "run" || p.Hint == "node-local") {
		return errors.New("a command that deletes needs the exclusive lock: it can't be done without (--if-unreachable run, --hint prefer-global, --hint node-local)")
	}
	return nil
}

// NeedsNone reports whether a command runs without a lock by its hint: by node-local, or by
// prefer-global if no lock is given. The user must hear why, unless why is empty.
func (p Policy) NeedsNone(given bool) (none bool, why string) {
	if !given && p.Hint == "prefer-global" {
		return true, "no repository is given"
	}
	return p.Hint == "node-local", ""
}

// Skips reports whether a command is not run, because another holder has its lock.
func (p Policy) Skips(err error) bool {
	return p.IfHeld == "skip" && errors.Is(err, fault.NotAcquired) && errors.Is(err, replock.ErrHeld)
}

// RunsUnlocked reports whether a command runs although its lock was not acquired.
func (p Policy) RunsUnlocked(err error) bool {
	return p.IfUnreachable == "run" && errors.Is(err, fault.Unanswered) && errors.Is(err, store.ErrUnreachable)
}
