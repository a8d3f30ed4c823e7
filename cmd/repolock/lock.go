package main

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/repolock/repolock/replock"
)

// lockFlags are the flags of the commands that hold a lock around another one.
type lockFlags struct {
	takeFlags
	cronFlags
	OnLost    string        `config:"" enum:"pause,term,kill,warn" default:"pause" help:"What becomes of the command when its lock is lost: pause stops it, and continues it if the lock can be resumed; term sends TERM in time, and kills it at the deadline; kill kills it; warn lets it run on."`
	DryRun    bool          `help:"Don't run the command, and take no lock: say what would be run and whether the lock is to be had, with the exit code of a refusal if it isn't. If the command has a dry run of its own, run that with run --no-lock."`
	ResumeFor time.Duration `config:"" default:"10m" help:"How long to try to resume a lost lock before the command is killed."`

	Command []string `arg:"" passthrough:"" name:"command" help:"The command and its arguments, after --."`
}

// command is what is to be run. Kong leaves the -- in it.
func (f lockFlags) command() ([]string, error) {
	args := f.Command
	switch {
	case len(args) > 0 && args[0] == "--":
		args = args[1:]
	case len(args) > 0 && strings.HasPrefix(args[0], "-"):
		return nil, usageError{fmt.Errorf("unknown flag %.80s", args[0])} // and no command's name
	}
	if len(args) == 0 || args[0] == "" {
		return nil, usageError{errors.New("no command: give it after --")}
	}
	return args, nil
}

func (f lockFlags) check() error {
	if err := f.takeFlags.check(); err != nil {
		return err
	}
	if f.ResumeFor < 0 {
		return usageError{fmt.Errorf("--resume-for %v: must not be negative", f.ResumeFor)}
	}
	return nil
}

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

type backupCmd struct{ lockFlags }

func (c backupCmd) Help() string { return lockHelp }

func (c backupCmd) run(r *reporter, g global) (int, error) {
	return c.do(r, g, replock.Shared, "backup")
}

type restoreCmd struct{ lockFlags }

func (c restoreCmd) Help() string { return lockHelp }

func (c restoreCmd) run(r *reporter, g global) (int, error) {
	return c.do(r, g, replock.Shared, "restore")
}

type pruneCmd struct{ lockFlags }

func (c pruneCmd) Help() string { return lockHelp }

func (c pruneCmd) run(r *reporter, g global) (int, error) {
	return c.do(r, g, replock.Exclusive, "prune")
}

type runCmd struct {
	Shared    bool   `xor:"mode" help:"Hold a shared lock."`
	Exclusive bool   `xor:"mode" help:"Hold the exclusive lock."`
	NoLock    bool   `xor:"mode" help:"Hold none: for operations that need none, such as a list or the command's own dry run."`
	Operation string `default:"run" help:"What others are shown as the operation."`
	lockFlags
}

func (c runCmd) Help() string { return lockHelp }

func (c runCmd) run(r *reporter, g global) (int, error) {
	switch {
	case c.NoLock:
		return c.do(r, g, 0, "")
	case c.Shared:
		return c.do(r, g, replock.Shared, c.Operation)
	case c.Exclusive:
		return c.do(r, g, replock.Exclusive, c.Operation)
	default:
		return 0, usageError{errors.New("say which lock: --shared, --exclusive or --no-lock")}
	}
}

const lockHelp = `The command's environment says REPOLOCK_HELD=1, REPOLOCK_REPO, REPOLOCK_MODE, REPOLOCK_ID, and REPOLOCK_FENCE where there is one.`
