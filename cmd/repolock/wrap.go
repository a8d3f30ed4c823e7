package main

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/repolock/repolock/cmd/internal/also"
	"github.com/repolock/repolock/cmd/internal/cli"
	"github.com/repolock/repolock/cmd/internal/programs"
	"github.com/repolock/repolock/cmd/internal/session"
	"github.com/repolock/repolock/cmd/internal/show"
	"github.com/repolock/repolock/internal/fault"
	"github.com/repolock/repolock/internal/procgroup"
	"github.com/repolock/repolock/internal/text"
	"github.com/repolock/repolock/replock"
)

// wrapCmd runs another command under a lock.
type wrapCmd struct {
	lockFlags
	policyFlags
	OnLost    string        `brief:"What to do to the command when the lock is lost" placeholder:"pause|term|kill|warn" config:"" enum:"pause,term,kill,warn" default:"pause" help:"What to do to the command when its lock is lost: pause (default) stops it, and continues it if the lock can be resumed; term sends TERM before the deadline, and kills it at the deadline; kill kills it; warn lets it run on."`
	DryRun    bool          `brief:"Run nothing: print whether the lock is free" help:"Don't run the command, and take no lock: print the command and whether the lock is free. If the lock is held, exit with the same code as without --dry-run. If the command has a dry run of its own, run that: repolock -- restic prune --dry-run, or for another program run --no-lock."`
	OncePer   time.Duration `rare:"" brief:"Skip the job if it succeeded less than this ago" placeholder:"PERIOD" help:"Skip the command, and exit with 0, if the same job has succeeded less than this time ago (1m or more), on any machine that locks there: for one line in the crontabs of several machines. Only with the exclusive lock. The last success is stored beside the lock, for each operation, and for each --job of it. Half of the time between two starts fits nearly every job."`
	ResumeFor time.Duration `rare:"" brief:"How long to try to resume a lost lock" config:"" default:"10m" help:"How long to try to resume a lost lock before the command is killed."`

	Command []string `arg:"" passthrough:"" name:"command" help:"The command and its arguments, after --."`

	mode      replock.Mode // of the lock; 0: none
	operation string
	anyMode   bool // the command line has no mode, because it names only locks of --also

	word   string   // the command of repolock whose mode a program's command must fit, or ""
	unlock []string // a command to run first, or nil
}

// args returns the command to run, with its arguments. Kong leaves the -- in them.
func (c wrapCmd) args(of string) ([]string, error) {
	args := c.Command
	switch {
	case len(args) > 0 && args[0] == "--":
		args = args[1:]
	case len(args) > 0 && strings.HasPrefix(args[0], "-"):
		word := args[0]
		if len(word) == len("-x") && len(args) > 1 {
			word += args[1] // kong has cut -wait in two
		}
		return nil, reader.NotAFlag([]string{of}, args[0], word)
	}
	if len(args) == 0 || args[0] == "" {
		return nil, cli.ErrNoCommand
	}
	return args, nil
}

// Check refuses values of the flags.
func (c wrapCmd) Check() error {
	if err := c.lockFlags.check(); err != nil {
		return err
	}
	if c.ResumeFor < 0 {
		return cli.WrongFlag("resume-for", c.ResumeFor.String(), "must not be negative")
	}
	return nil
}

// Files returns the values of the flags that are paths.
func (c wrapCmd) Files() map[string]string {
	return map[string]string{"audit": c.Audit, "metrics-file": c.Metrics}
}

func (c wrapCmd) run(r *show.Reporter, g global) (code int, err error) {
	defer func() { err = cli.Unrunnable(c.Command, g.Typed["repo"], err) }()
	if err := c.Check(); err != nil {
		return 0, err
	}
	needs := c.mode
	if c.anyMode {
		needs = replock.Shared
	}
	if err := c.settle(needs); err != nil {
		return 0, fault.As(fault.Usage, err)
	}
	if c.IfHeld == "wait" && c.Wait == 0 {
		c.Wait = cli.WaitTime(replock.Forever)
	}
	p, err := c.plan(g, c.mode, c.operation)
	if err != nil {
		return 0, err
	}
	args, err := c.args(r.Command)
	if err != nil {
		return 0, err
	}
	if err := c.checkLine(r, g, args); err != nil {
		return 0, err
	}
	if err := c.checkOnce(p); err != nil {
		return 0, err
	}
	p.oncePer = c.OncePer
	none, why := c.needsNone(g.Repo != "" || len(c.Also) > 0)
	none = none || c.mode == 0
	switch {
	case c.DryRun:
		return c.dryRun(r, p, args, none)
	case why != "" && c.mode != 0:
		return runUnlocked(r, args, why)
	case none:
		return become(args)
	}
	if err := replock.CheckOperation(c.operation); err != nil {
		return 0, fault.As(fault.Usage, err)
	}
	if c.unlock != nil {
		if args, err = afterUnlock(c.unlock, args); err != nil {
			return 0, err
		}
	}
	request := p.request(r)
	command := session.Command{Request: request, Args: args, OnLost: c.OnLost, ResumeFor: c.ResumeFor, Survey: newSurvey(r, g), Aftermath: aftermath(request.Others)}
	if code, err = command.Run(); err != nil {
		return c.without(r, args, err)
	}
	return code, nil
}

// leastPeriod is the shortest --once-per. A clock's rounding must not matter.
const leastPeriod = time.Minute

// checkOnce refuses --once-per if two runs of a job could be at the same time, or if different jobs would be taken for
// one.
func (c wrapCmd) checkOnce(p plan) error {
	refuse := func(why, hint string) error { return fault.Advise(fault.New(fault.Usage, "--once-per: %s", why), hint) }
	name := "--name NAME "
	if p.Name != "" { // the hint has it
		name = ""
	}
	example := "write {repolock run} --exclusive " + name + "--once-per " + show.FlagDuration(c.OncePer) + " -- COMMAND"
	switch {
	case c.OncePer == 0 && !p.OnLine("once-per"):
		return nil
	case c.OncePer < leastPeriod:
		return cli.WrongFlag("once-per", show.FlagDuration(c.OncePer), "must be at least %s", show.FlagDuration(leastPeriod))
	case p.alone:
		return refuse("stores the last success in a repository, and none is given", "add --repo, and --exclusive")
	case c.mode != replock.Exclusive:
		return refuse("needs the exclusive lock, or two machines could run the command at the same time", example)
	case c.operation == "run" && c.Job == "" && p.Name == "":
		return refuse("say which job this is, or another command would be taken for it", example+", or add --job NAME")
	default:
		return nil
	}
}

// aftermath returns the command line by which the guard removes our locks when we are killed, or nil if all
// locks expire by themselves. break-lock --dead finds them, because they name our process. The guard has no
// environment and reads no configuration file.
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

type runCmd struct {
	Shared    bool   `xor:"mode" help:"Hold a shared lock."`
	Exclusive bool   `xor:"mode" help:"Hold the exclusive lock."`
	NoLock    bool   `xor:"mode" help:"Hold no lock: for operations that need none, such as a list or the command's own dry run."`
	Operation string `placeholder:"NAME" default:"run" help:"The operation that other users see."`
	wrapCmd
}

func (c runCmd) run(r *show.Reporter, g global) (int, error) {
	c.operation = c.Operation
	switch {
	case c.NoLock && len(c.Also) > 0:
		return 0, fault.New(fault.Usage, "--no-lock: can't be used with --also: give one of the two")
	case c.NoLock && g.OnLine("wait"):
		return 0, fault.New(fault.Usage, "--no-lock: there is no lock to wait for: leave out --wait")
	case c.NoLock && c.Fence:
		return 0, fault.New(fault.Usage, "--no-lock: only the exclusive lock has fencing tokens: leave out --fence")
	case c.NoLock:
		for _, flag := range ofLock {
			if g.OnLine(flag) {
				return 0, fault.New(fault.Usage, "--no-lock: there is no lock for --%s: leave out one of the two", flag)
			}
		}
	case c.Shared:
		c.mode = replock.Shared
	case c.Exclusive:
		c.mode = replock.Exclusive
	case g.Repo == "" && g.Unknown == nil && len(c.Also) > 0:
		c.mode, c.anyMode = replock.Exclusive, true
	default:
		if _, err := c.args(r.Command); err != nil {
			return 0, err // a misspelled --exclusive
		}
		err := fault.New(fault.Usage, "say which lock: --shared, --exclusive or --no-lock")
		if len(c.Also) > 0 && g.Unknown == nil && !g.OnLine("repo") {
			err = fault.New(fault.Usage, "say which lock of %s, which %s names: --shared or --exclusive", g.place().Title(), g.namedBy())
			alone := "add --config=, which reads no file"
			if from := g.Sources["repo"].Variable; from != "" {
				alone = "unset " + from
			}
			err = fault.Advise(err, "for the locks of --also alone, "+alone)
		}
		return 0, err
	}
	return c.wrapCmd.run(r, g)
}

// ofLock are the flags that do nothing without a lock.
var ofLock = [...]string{
	"ttl", "look", "if-held", "if-unreachable", "hint", "on-lost", "resume-for", "held-exit-code", "metadata", "audit",
	"metrics-file", "job", "settle", "force-lock", "request-id", "actor", "intent-version",
}

// dryRun is the result of --dry-run in JSON. Fields are only ever added.
type dryRun struct {
	WouldRun   []string `json:"would_run"`
	Mode       string   `json:"mode,omitempty"` // empty: without a lock
	Operation  string   `json:"operation,omitempty"`
	LockName   string   `json:"lock_name,omitempty"`
	Available  bool     `json:"available"` // the lock is free now, or none is needed
	Suggestion string   `json:"suggestion"`
}

// dryRun doesn't run the command, because only the command itself can try to run without a change. If another
// holder has the lock, it returns the same error as without --dry-run.
func (c wrapCmd) dryRun(r *show.Reporter, p plan, args []string, none bool) (int, error) {
	if _, err := procgroup.LookPath(args); err != nil {
		return 0, err
	}
	out := dryRun{WouldRun: args, Available: true, Suggestion: "for a command with a dry run of its own: repolock run --no-lock -- COMMAND"}
	if c.operation == "restore" { // a prune must not delete what a restore reads
		out.Suggestion = "for a command with a dry run of its own: repolock restore -- COMMAND"
	}
	out.Suggestion = cmp.Or(programs.OwnDryRun(args, os.Environ()), out.Suggestion)
	if none {
		return 0, out.print(r)
	}
	if err := replock.CheckOperation(c.operation); err != nil {
		return 0, fault.As(fault.Usage, err)
	}
	out.Mode, out.Operation = c.mode.String(), c.operation
	out.LockName, _ = p.named()
	p.observe = r.Event
	r.BeginWait("reading the locks", session.Titles(p.places))
	held, at, err := p.blocking()
	var done, doubt error
	if once := p.request(r).Once; once != nil && err == nil {
		var last *session.SucceededError
		if last, doubt = once.Succeeded(context.Background(), ""); last != nil {
			done = last
		}
	}
	r.EndWait()
	if err != nil {
		return 0, err
	}
	out.Available = held == nil
	switch err := out.print(r); {
	case err != nil:
		return 0, err
	case done != nil:
		return c.without(r, args, done)
	case doubt != nil:
		r.Say("warning: the job's last success isn't known: %s", session.Words(doubt, ""))
	}
	if held == nil {
		return 0, nil
	}
	return c.without(r, args, session.NotAcquired(session.NewHeldError(held, at, c.HeldCode), true))
}

// blocking returns the first place with locks that conflict with the plan's, and these locks, or nil if there are
// none.
func (p plan) blocking() (*replock.HeldError, session.Place, error) {
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
			return i.Verdict == replock.Stale && (p.ForceLock || !isFleet(one.Place)) || p.mode == replock.Shared && i.Mode == replock.Shared
		})
		if n := min(len(holders), show.MostNamed); n > 0 {
			return &replock.HeldError{Mode: p.mode, Holders: holders[:n], More: len(holders) - n}, one.Place, nil
		}
	}
	return nil, session.Place{}, nil
}

func (o dryRun) print(r *show.Reporter) error {
	lock := map[string]string{"": "WITHOUT A LOCK", "shared": "under a shared lock", "exclusive": "under the exclusive lock"}[o.Mode]
	found := ""
	if o.Mode != "" && o.Available {
		found = "the lock is available\n"
	}
	last := show.Hanging("nothing was run, and no lock was taken; "+o.Suggestion, show.TerminalWidth(os.Stdout))
	return r.Result(o, fmt.Sprintf("would run, %s: %s\n%s%s\n", lock, text.Escape(spell(o.WouldRun)), found, last))
}
