package main

import (
	"strings"
	"time"

	"github.com/repolock/repolock/cmd/internal/session"
	"github.com/repolock/repolock/internal/fault"
	"github.com/repolock/repolock/replock"
)

// commandFlags are the flags of the commands that hold a lock around another one.
type commandFlags struct {
	lockFlags
	policyFlags
	OnLost    string        `brief:"What to do to the command when it is lost" placeholder:"pause|term|kill|warn" config:"" enum:"pause,term,kill,warn" default:"pause" help:"What to do to the command when its lock is lost: pause (default) stops it, and continues it if the lock can be resumed; term sends TERM in time, and kills it at the deadline; kill kills it; warn lets it run on."`
	DryRun    bool          `brief:"Run nothing: print whether the lock is free" help:"Don't run the command, and take no lock: print the command and whether the lock is free, and exit as without --dry-run if it is held. If the command has a dry run of its own, run that with run --no-lock."`
	ResumeFor time.Duration `rare:"" brief:"How long to try to resume a lost lock" config:"" default:"10m" help:"How long to try to resume a lost lock before the command is killed."`

	Command []string `arg:"" passthrough:"" name:"command" help:"The command and its arguments, after --."`

	modeless bool // the locks of --also are exclusive, and the command needn't be one that deletes
}

// policyFlags are the flags of session.Policy.
type policyFlags struct {
	IfHeld        string `brief:"What to do when it is held" config:"" enum:",fail,skip,wait" default:"" placeholder:"fail|skip|wait" help:"When the lock is held, after any --wait: fail (default) exits with 75; skip prints a line and exits with 0; wait waits as --wait forever, or as --wait says."`
	IfUnreachable string `brief:"What to do when the store can't be reached" config:"" enum:",fail,run" default:"" placeholder:"fail|run" help:"When the store can't be reached: fail (default) exits with 69; run runs the command WITHOUT A LOCK, for a backup that you want at any price. Not with the exclusive lock."`
	Hint          string `rare:"" brief:"The same in the words of schedulers" enum:",require-global,prefer-global,node-local" default:"" placeholder:"HINT" help:"The same in the words of schedulers: require-global is --if-held skip; prefer-global is that and --if-unreachable run, also if no repository is given; node-local takes no lock."`
}

func (commandFlags) Help() string {
	return `The command's environment has REPOLOCK_HELD=1, REPOLOCK_REPO if there is a repository, REPOLOCK_MODE, REPOLOCK_ID, and REPOLOCK_FENCE if there is one.`
}

// command returns what a command of repolock is to run, with its arguments. Kong leaves the -- in them.
func (f commandFlags) command(of string) ([]string, error) {
	args := f.Command
	switch {
	case len(args) > 0 && args[0] == "--":
		args = args[1:]
	case len(args) > 0 && strings.HasPrefix(args[0], "-"):
		word := args[0]
		if len(word) == len("-x") && len(args) > 1 {
			word += args[1] // kong has cut -wait in two
		}
		return nil, notAFlag([]string{of}, args[0], word)
	}
	if len(args) == 0 || args[0] == "" {
		return nil, errNoCommand
	}
	return args, nil
}

func (f commandFlags) check() error {
	if err := f.lockFlags.check(); err != nil {
		return err
	}
	if f.ResumeFor < 0 {
		return fault.New(fault.Usage, "--resume-for %v: must not be negative", f.ResumeFor)
	}
	return nil
}

// wrap runs the command under a lock, or unlocked if it needs none.
func (f commandFlags) wrap(r *reporter, g global, mode replock.Mode, operation string) (int, error) {
	code, err := f.wrapped(r, g, mode, operation)
	return code, unrunnable(f.Command, err)
}

func (f commandFlags) wrapped(r *reporter, g global, mode replock.Mode, operation string) (int, error) {
	if err := f.check(); err != nil {
		return 0, err
	}
	needs := mode
	if f.modeless {
		needs = replock.Shared
	}
	if err := f.settle(needs); err != nil {
		return 0, err
	}
	p, err := f.plan(g, mode, operation)
	if err != nil {
		return 0, err
	}
	args, err := f.command(r.command)
	if err != nil {
		return 0, err
	}
	if f.DryRun {
		return f.dryRun(r, p, args)
	}
	if mode == 0 {
		return become(args)
	}
	if none, why := session.Policy(f.policyFlags).NeedsNone(g.Repo != "" || len(f.Also) > 0); why != "" {
		return runUnlocked(r, args, why)
	} else if none {
		return become(args)
	}
	if err := replock.CheckOperation(operation); err != nil {
		return 0, fault.As(fault.Usage, err)
	}
	request := p.request(r)
	c := session.Command{Request: request, Args: args, OnLost: f.OnLost, ResumeFor: f.ResumeFor, Survey: newSurvey(r, g), Aftermath: aftermath(request.Others)}
	code, err := c.Run()
	if err != nil {
		return f.without(r, args, err)
	}
	return code, nil
}

// aftermath returns the command line that removes the locks that stay when we are killed, or nil. They name our
// process, which has ended then. The guard has no environment, and no configuration.
func aftermath(places []session.Place) (args []string) {
	for _, p := range places {
		if p.Stays {
			args = append(args, "--also", p.URL)
		}
	}
	if args != nil {
		args = append([]string{"break-lock", "--config=", "--dead", "--yes"}, args...)
	}
	return args
}

// newSurvey returns nil if a survey has nothing to print, or nowhere to look.
func newSurvey(r *reporter, g global) *session.Survey {
	if r.Quiet || r.JSON || g.Repo == "" || g.unknown != nil {
		return nil
	}
	return session.NewSurvey(g.place(), g.store, r.Say)
}

// settle checks the flags, and replaces the hint by its meaning.
func (f *commandFlags) settle(mode replock.Mode) error {
	policy := session.Policy(f.policyFlags)
	if err := policy.Settle(mode); err != nil {
		return fault.As(fault.Usage, err)
	}
	f.policyFlags = policyFlags(policy)
	if f.IfHeld == "wait" && f.Wait == 0 {
		f.Wait = waitTime(replock.Forever)
	}
	return nil
}

// without skips a command whose lock was not acquired, or runs it unlocked, or returns err.
func (f policyFlags) without(r *reporter, args []string, err error) (int, error) {
	switch policy := session.Policy(f); {
	case policy.Skips(err):
		r.skipped(err)
		return 0, nil
	case policy.RunsUnlocked(err):
		return runUnlocked(r, args, session.Words(err, ""))
	default:
		return 0, err
	}
}

// become puts a command without a lock in the place of this process. Tests of this process replace it.
var become = session.RunUnlocked

func runUnlocked(r *reporter, args []string, why string) (int, error) {
	r.Alert("unlocked", "RUNNING WITHOUT A LOCK: "+why)
	return become(args)
}

func (r *reporter) skipped(err error) {
	out := newJSONError(r, err)
	if r.JSON {
		out.ExitCode = 0
		_ = r.object(r.stderr, out)
		return
	}
	r.Say("skipped: %s", out.words(r.Verb))
}

type backupCmd struct{ commandFlags }

func (c backupCmd) run(r *reporter, g global) (int, error) {
	return c.wrap(r, g, replock.Shared, "backup")
}

type restoreCmd struct{ commandFlags }

func (c restoreCmd) run(r *reporter, g global) (int, error) {
	return c.wrap(r, g, replock.Shared, "restore")
}

type pruneCmd struct{ commandFlags }

func (c pruneCmd) run(r *reporter, g global) (int, error) {
	return c.wrap(r, g, replock.Exclusive, "prune")
}

type runCmd struct {
	Shared    bool   `xor:"mode" help:"Hold a shared lock."`
	Exclusive bool   `xor:"mode" help:"Hold the exclusive lock."`
	NoLock    bool   `xor:"mode" help:"Hold no lock: for operations that need none, such as a list or the command's own dry run."`
	Operation string `placeholder:"NAME" default:"run" help:"The operation that others see."`
	commandFlags
}

func (c runCmd) Help() string {
	return c.commandFlags.Help() + " The locks of --also alone need neither --shared nor --exclusive."
}

func (c runCmd) run(r *reporter, g global) (int, error) {
	switch {
	case c.NoLock && len(c.Also) > 0:
		return 0, fault.New(fault.Usage, "--no-lock: holds none of the locks of --also: give one of the two")
	case c.NoLock:
		return c.wrap(r, g, 0, "")
	case c.Shared:
		return c.wrap(r, g, replock.Shared, c.Operation)
	case c.Exclusive:
		return c.wrap(r, g, replock.Exclusive, c.Operation)
	case g.Repo == "" && g.unknown == nil && len(c.Also) > 0:
		c.modeless = true
		return c.wrap(r, g, replock.Exclusive, c.Operation)
	default:
		if _, err := c.command(r.command); err != nil {
			return 0, err // a misspelled --exclusive
		}
		return 0, fault.New(fault.Usage, "say which lock: --shared, --exclusive or --no-lock")
	}
}
