package session

import (
	"errors"

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
// prefer-global if there is no repository. The user must hear why, unless why is empty.
func (p Policy) NeedsNone(repo string) (none bool, why string) {
	if repo == "" && p.Hint == "prefer-global" {
		return true, "no repository is given"
	}
	return p.Hint == "node-local", ""
}

// Decision is what happens to a command without its lock.
type Decision int

// The decisions.
const (
	Fail Decision = iota
	Skip
	Unlocked
)

// Decide decides for a NotAcquiredError. Any other error fails.
func (p Policy) Decide(err error) Decision {
	var not NotAcquiredError
	switch {
	case !errors.As(err, &not):
		return Fail
	case errors.Is(err, replock.ErrHeld) && p.IfHeld == "skip":
		return Skip
	case p.IfUnreachable == "run" && !not.Answered && errors.Is(err, store.ErrUnreachable):
		return Unlocked
	default:
		return Fail
	}
}
