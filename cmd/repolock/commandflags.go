package main

import (
	"errors"
	"fmt"
	"strings"
	"time"
)

// commandFlags are the flags of the commands that hold a lock around another one.
type commandFlags struct {
	lockFlags
	policyFlags
	OnLost    string        `config:"" enum:"pause,term,kill,warn" default:"pause" help:"What to do to the command when its lock is lost: pause (default) stops it, and continues it if the lock can be resumed; term sends TERM in time, and kills it at the deadline; kill kills it; warn lets it run on."`
	DryRun    bool          `help:"Don't run the command, and take no lock: print the command and whether the lock is free, and exit as without --dry-run if it is held. If the command has a dry run of its own, run that with run --no-lock."`
	ResumeFor time.Duration `config:"" default:"10m" help:"How long to try to resume a lost lock before the command is killed."`

	Command []string `arg:"" passthrough:"" name:"command" help:"The command and its arguments, after --."`
}

// command returns the command and its arguments. Kong leaves the -- in them.
func (f commandFlags) command() ([]string, error) {
	args := f.Command
	switch {
	case len(args) > 0 && args[0] == "--":
		args = args[1:]
	case len(args) > 0 && strings.HasPrefix(args[0], "-"):
		return nil, usageError{fmt.Errorf("unknown flag %.80s", args[0])} // not the name of a command
	}
	if len(args) == 0 || args[0] == "" {
		return nil, usageError{errors.New("no command: give it after --")}
	}
	return args, nil
}

func (f commandFlags) check() error {
	if err := f.lockFlags.check(); err != nil {
		return err
	}
	if f.ResumeFor < 0 {
		return usageError{fmt.Errorf("--resume-for %v: must not be negative", f.ResumeFor)}
	}
	return nil
}
