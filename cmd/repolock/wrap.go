package main

import (
	"github.com/repolock/repolock/internal/session"
	"github.com/repolock/repolock/replock"
)

// wrap runs the command under a lock, or unlocked if it needs none.
func (f commandFlags) wrap(r *reporter, g global, mode replock.Mode, operation string) (int, error) {
	if err := f.check(); err != nil {
		return 0, err
	}
	if err := f.settle(mode); err != nil {
		return 0, err
	}
	args, err := f.command()
	if err != nil {
		return 0, err
	}
	if f.DryRun {
		return f.dryRun(r, g, mode, operation, args)
	}
	if mode == 0 {
		return session.RunUnlocked(args)
	}
	if none, why := session.Policy(f.policyFlags).NeedsNone(g.Repo); why != "" {
		return runUnlocked(r, args, why)
	} else if none {
		return session.RunUnlocked(args)
	}
	if err := replock.CheckOperation(operation); err != nil {
		return 0, usageError{err}
	}
	c := session.Command{Request: f.request(r, g, mode, operation), Args: args, OnLost: f.OnLost, ResumeFor: f.ResumeFor, Survey: newSurvey(r, g)}
	code, err := c.Run()
	if err != nil {
		return f.without(r, args, err)
	}
	return code, nil
}

// newSurvey returns nil if a survey has nothing to print, or nowhere to look.
func newSurvey(r *reporter, g global) *session.Survey {
	if r.Quiet || r.JSON || g.Repo == "" || g.unknown != nil {
		return nil
	}
	return session.NewSurvey(g.place(), g.store, r.Say)
}

const lockHelp = `The command's environment has REPOLOCK_HELD=1, REPOLOCK_REPO, REPOLOCK_MODE, REPOLOCK_ID, and REPOLOCK_FENCE if there is one.`
