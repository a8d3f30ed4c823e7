package main

import "github.com/repolock/repolock/replock"

// do runs the command under a lock, or bare if there is to be none.
func (f lockFlags) do(r *reporter, g global, mode replock.Mode, operation string) (int, error) {
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
		return f.rehearse(r, g, mode, operation, args)
	}
	if mode == 0 || f.Hint == "node-local" {
		return bare(args)
	}
	if g.Repo == "" && f.Hint == "prefer-global" {
		r.shout("unlocked", "RUNNING WITHOUT A LOCK: no repository is given")
		return bare(args)
	}
	if err := replock.CheckOperation(operation); err != nil {
		return 0, usageError{err}
	}
	t := taking{flags: f.takeFlags, global: g, report: r, mode: mode, operation: operation}
	s := &session{lockFlags: f, taking: &t, args: args}
	code, err := s.run()
	if err != nil {
		return f.without(r, args, err)
	}
	s.interrupted()
	return code, nil
}

const lockHelp = `The command's environment says REPOLOCK_HELD=1, REPOLOCK_REPO, REPOLOCK_MODE, REPOLOCK_ID, and REPOLOCK_FENCE where there is one.`
