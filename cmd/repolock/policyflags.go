package main

import (
	"github.com/repolock/repolock/internal/session"
	"github.com/repolock/repolock/internal/text"
	"github.com/repolock/repolock/replock"
)

// policyFlags are the flags of session.Policy.
type policyFlags struct {
	IfHeld        string `config:"" enum:",fail,skip,wait" default:"" placeholder:"fail|skip|wait" help:"When the lock is held, after any --wait: fail (default) exits with 75; skip prints a line and exits with 0; wait waits as --wait forever, or as --wait says."`
	IfUnreachable string `config:"" enum:",fail,run" default:"" placeholder:"fail|run" help:"When the store can't be reached: fail (default) exits with 69; run runs the command WITHOUT A LOCK, for a backup that you want at any price. Not with the exclusive lock."`
	Hint          string `enum:",require-global,prefer-global,node-local" default:"" placeholder:"HINT" help:"The same in the words of schedulers: require-global is --if-held skip; prefer-global is that and --if-unreachable run, also if no repository is given; node-local takes no lock."`
}

// settle checks the flags, and replaces the hint by what it means.
func (f *commandFlags) settle(mode replock.Mode) error {
	policy := session.Policy(f.policyFlags)
	if err := policy.Settle(mode); err != nil {
		return usageError{err}
	}
	f.policyFlags = policyFlags(policy)
	if f.IfHeld == "wait" && f.Wait == 0 {
		f.Wait = waitTime(replock.Forever)
	}
	return nil
}

// without skips a command whose lock was not acquired, or runs it unlocked, or returns err.
func (f policyFlags) without(r *reporter, args []string, err error) (int, error) {
	switch session.Policy(f).Decide(err) {
	case session.Skip:
		r.skipped(err)
		return 0, nil
	case session.Unlocked:
		return runUnlocked(r, args, text.Error(err))
	default:
		return 0, err
	}
}

// runUnlocked runs a command without a lock, and says why.
func runUnlocked(r *reporter, args []string, why string) (int, error) {
	r.Alert("unlocked", "RUNNING WITHOUT A LOCK: "+why)
	return session.RunUnlocked(args)
}

// skipped says that the command was not run.
func (r *reporter) skipped(err error) {
	if r.JSON {
		out := newJSONError(r, err)
		out.ExitCode = 0
		r.object(out)
		return
	}
	r.Say("skipped: %s", text.Error(err))
}
