package main

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/repolock/repolock/cmd/internal/also"
	"github.com/repolock/repolock/cmd/internal/session"
	"github.com/repolock/repolock/internal/fault"
	"github.com/repolock/repolock/internal/lazyregexp"
	"github.com/repolock/repolock/internal/procgroup"
	"github.com/repolock/repolock/internal/text"
	"github.com/repolock/repolock/locking/towerfleet"
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

// dryRun is what --dry-run prints, in JSON. Fields are only ever added.
type dryRun struct {
	WouldRun   []string `json:"would_run"`
	Mode       string   `json:"mode,omitempty"` // empty: without a lock
	Operation  string   `json:"operation,omitempty"`
	LockName   string   `json:"lock_name,omitempty"`
	Available  bool     `json:"available"` // the lock is free now, or none is needed
	Suggestion string   `json:"suggestion"`
}

// dryRun does what --dry-run says: it runs nothing and writes nothing, because only the
// command itself knows how to run and change nothing. It returns the error that the command
// would get if another holder has the lock.
func (f commandFlags) dryRun(r *reporter, p plan, args []string) (int, error) {
	if _, err := procgroup.LookPath(args); err != nil {
		return 0, err
	}
	out := dryRun{WouldRun: args, Available: true, Suggestion: "for a command with a dry run of its own: repolock run --no-lock -- COMMAND"}
	if p.operation == "restore" { // a prune must not delete what a restore reads
		out.Suggestion = "for a command with a dry run of its own: repolock restore -- COMMAND"
	}
	if none, _ := session.Policy(f.policyFlags).NeedsNone(p.Repo != "" || len(f.Also) > 0); none || p.mode == 0 {
		return 0, out.print(r)
	}
	if err := replock.CheckOperation(p.operation); err != nil {
		return 0, fault.As(fault.Usage, err)
	}
	out.Mode, out.Operation = p.mode.String(), p.operation
	out.LockName, _ = p.named()
	wait := r.looking(&p.global)
	wait.BeginWait("reading the locks: " + session.Titles(p.places))
	held, at, err := p.inTheWay()
	wait.EndWait()
	if err != nil {
		return 0, err
	}
	out.Available = held == nil
	if err := out.print(r); err != nil || held == nil {
		return 0, err
	}
	return f.without(r, args, session.NotAcquired(session.NewHeldError(held, at, f.HeldCode), true))
}

// maxNamed is the number of holders that an error names.
const maxNamed = 16

// inTheWay returns the locks that conflict with the lock of a plan, or nil, and their place.
// It looks no further when it has found some.
func (p plan) inTheWay() (*replock.HeldError, session.Place, error) {
	all, closeAll, err := p.systems(p.Also, also.Look)
	defer closeAll()
	if err != nil {
		return nil, session.Place{}, err
	}
	for _, one := range all {
		holders, err := one.Status(context.Background())
		if err != nil {
			return nil, one.Place, err
		}
		holders = slices.DeleteFunc(holders, func(i replock.Info) bool {
			return i.Verdict == replock.Stale && (p.ForceLock || passed(one.Place)) || p.mode == replock.Shared && i.Mode == replock.Shared
		})
		if n := min(len(holders), maxNamed); n > 0 {
			return &replock.HeldError{Mode: p.mode, Holders: holders[:n], More: len(holders) - n}, one.Place, nil
		}
	}
	return nil, session.Place{}, nil
}

// passed reports whether an acquirer passes a stale lock. One of tower-fleet stays, unless
// --force-lock steals it.
func passed(p session.Place) bool { return !strings.HasPrefix(p.URL, towerfleet.Scheme+":") }

func (o dryRun) print(r *reporter) error {
	lock := map[string]string{"": "WITHOUT A LOCK", "shared": "under a shared lock", "exclusive": "under the exclusive lock"}[o.Mode]
	found := ""
	if o.Mode != "" && o.Available {
		found = "the lock is to be had now\n"
	}
	last := hanging("nothing was run, and no lock was taken; "+o.Suggestion, terminalWidth(os.Stdout))
	return r.result(o, fmt.Sprintf("would run, %s: %s\n%s%s\n", lock, text.Escape(spell(o.WouldRun)), found, last))
}

var bareWord = lazyregexp.New(`^[A-Za-z0-9_@%+=:,./-]+$`)

func spell(args []string) string {
	var words []string
	for _, a := range args {
		if !bareWord.MatchString(a) {
			a = text.Quote(a)
		}
		words = append(words, a)
	}
	return strings.Join(words, " ")
}
