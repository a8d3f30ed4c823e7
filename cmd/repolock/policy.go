package main

import (
	"errors"

	"github.com/repolock/repolock/cmd/internal/session"
	"github.com/repolock/repolock/cmd/internal/show"
	"github.com/repolock/repolock/internal/fault"
	"github.com/repolock/repolock/replock"
	"github.com/repolock/repolock/store"
)

// policyFlags decide what happens to a command whose lock can't be acquired. They are for schedulers, which run the
// command again later.
type policyFlags struct {
	IfHeld        string `brief:"What to do when the lock is held" config:"" enum:",fail,skip,wait" default:"" placeholder:"fail|skip|wait" help:"When the lock is held, after any --wait: fail (default) exits with 75; skip prints a line and exits with 0; wait waits for the time of --wait, or forever without --wait."`
	IfUnreachable string `brief:"What to do when the store can't be reached" config:"" enum:",fail,run" default:"" placeholder:"fail|run" help:"When the store can't be reached (its name must be known): fail (default) exits with 69; run runs the command WITHOUT A LOCK, for a backup that you want at any price. Not with the exclusive lock."`
	Hint          string `rare:"" brief:"--if-held and --if-unreachable in the words of a scheduler" enum:",require-global,prefer-global,node-local" default:"" placeholder:"HINT" help:"--if-held and --if-unreachable in the words of a scheduler: require-global is --if-held skip; prefer-global is --if-held skip and --if-unreachable run, and runs without a lock if no repository is given; node-local takes no lock."`
}

// settle sets the other flags as --hint demands.
func (f *policyFlags) settle(mode replock.Mode) error {
	if f.Hint != "" && (f.IfHeld != "" || f.IfUnreachable != "") {
		return errors.New("--hint can't be used together with --if-held or --if-unreachable")
	}
	switch f.Hint {
	case "require-global":
		f.IfHeld = "skip"
	case "prefer-global":
		f.IfHeld, f.IfUnreachable = "skip", "run"
	}
	if mode == replock.Exclusive && (f.IfUnreachable == "run" || f.Hint == "node-local") {
		return errors.New("a command that deletes must not run without its exclusive lock (--if-unreachable run, --hint prefer-global, --hint node-local)")
	}
	return nil
}

// needsNone reports whether --hint lets a command run without a lock. node-local does; prefer-global does if no lock
// is given. why is the reason to show to the user, or "".
func (f policyFlags) needsNone(given bool) (none bool, why string) {
	if !given && f.Hint == "prefer-global" {
		return true, "no repository is given"
	}
	return f.Hint == "node-local", ""
}

// without skips a command whose lock was not acquired, or runs it unlocked, or returns err.
func (f policyFlags) without(r *show.Reporter, args []string, err error) (int, error) {
	policy := f.policy()
	switch {
	case policy.Skips(err), errors.Is(err, fault.Succeeded):
		r.Skipped(err)
		return 0, nil
	case policy.RunsUnlocked(err):
		return runUnlocked(r, args, session.Words(err, ""))
	case policy.RunUnreachable && errors.Is(err, store.ErrNoHost):
		return 0, fault.Advise(err, "--if-unreachable run doesn't apply, because an unknown name isn't an outage; "+fault.Advice(err))
	default:
		return 0, err
	}
}

// policy returns the policy that the flags describe. settle must be called first.
func (f policyFlags) policy() session.Policy {
	return session.Policy{SkipHeld: f.IfHeld == "skip", RunUnreachable: f.IfUnreachable == "run"}
}

// become replaces this process by a command that runs without a lock. Tests replace become.
var become = session.RunUnlocked

func runUnlocked(r *show.Reporter, args []string, why string) (int, error) {
	r.Alert("unlocked", "RUNNING WITHOUT A LOCK: "+why)
	return become(args)
}
