// Repolock runs a backup, restore or prune while it holds a lock in the backup repository
// itself.
package main

import (
	"context"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/alecthomas/kong"

	"github.com/repolock/repolock/cmd/internal/also"
	"github.com/repolock/repolock/cmd/internal/session"
	"github.com/repolock/repolock/internal/config"
	"github.com/repolock/repolock/internal/fault"
	"github.com/repolock/repolock/replock"
	"github.com/repolock/repolock/store"
	"github.com/repolock/repolock/store/open"
)

func main() {
	os.Exit(run(os.Args[1:], os.Stdout, os.Stderr))
}

// cli is the command line. The flags of all commands are in global. A command with noconfig
// doesn't read the configuration file.
type cli struct {
	global

	Backup     backupCmd     `cmd:"" help:"Run a backup under a shared lock."`
	Restore    restoreCmd    `cmd:"" help:"Run a restore under a shared lock."`
	Prune      pruneCmd      `cmd:"" help:"Run a prune under the exclusive lock."`
	Run        runCmd        `cmd:"" help:"Run any other command under a lock, or without one."`
	Acquire    acquireCmd    `cmd:"" help:"Acquire a lock for a script, and hold it in the background."`
	Check      checkCmd      `cmd:"" noconfig:"" help:"Exit with 0 if the lock of acquire is held now."`
	Renew      renewCmd      `cmd:"" noconfig:"" help:"Refresh the lock of acquire now."`
	Release    releaseCmd    `cmd:"" noconfig:"" help:"Release the lock of acquire."`
	Status     statusCmd     `cmd:"" help:"Show every lock in the repository. Never writes."`
	History    historyCmd    `cmd:"" noconfig:"" help:"Show from an audit log who held which lock, and when."`
	BreakLock  breakCmd      `cmd:"" help:"Delete locks of any holder. For emergencies."`
	Doctor     doctorCmd     `cmd:"" help:"Try out whether a store is fit for locks."`
	Torture    tortureCmd    `cmd:"" help:"Let processes contend for a lock, and see whether it holds."`
	Repos      reposCmd      `cmd:"" help:"Show the repositories of the configuration file."`
	Completion completionCmd `cmd:"" noconfig:"" help:"Print a script that completes command lines in a shell."`
	Man        manCmd        `cmd:"" noconfig:"" help:"Print the manual page, repolock(1)."`
	Version    versionCmd    `cmd:"" noconfig:"" help:"Show the version."`
	Help       helpCmd       `cmd:"" noconfig:"" help:"Show the help of a command, or on a topic."`

	Complete     completeCmd     `cmd:"" hidden:"" noconfig:""`
	Keeper       keeperCmd       `cmd:"" hidden:"" noconfig:""`
	TortureChild tortureChildCmd `cmd:"" hidden:"" noconfig:""`

	TortureWitness tortureWitnessCmd `cmd:"" hidden:"" noconfig:""`
}

type global struct {
	Repo   string `once:"" predictor:"repository" short:"r" placeholder:"REPOSITORY" env:"REPOLOCK_REPO" help:"Repository: a directory, an ${schemes} URL, or a name from the configuration file."`
	Name   string `once:"" config:"" placeholder:"NAME" help:"Use the lock of this name, for a repository that has several."`
	Config string `emptiable:"" predictor:"file" placeholder:"FILE" env:"REPOLOCK_CONFIG" help:"Configuration file, in place of the user's or the system's; an empty name is none."`
	JSON   bool   `name:"json" help:"Print JSON: results on stdout, an error on stderr."`
	Quiet  bool   `short:"q" help:"Print only errors."`
	Verb   bool   `short:"v" name:"verbose" help:"Print every event of the lock."`

	PrintVersion versionFlag `name:"version" help:"Show the version, and exit."`

	file    *config.File // nil: none was read
	unknown error        // why the repository is unknown
	listed  string       // the lock's name in the file

	Sources map[string]source `kong:"-"` // where the flags are from that the command line doesn't have

	observe func(replock.Event) // the events of locks that are looked at; nil: no observer
}

// run is main without the process: it parses, runs and returns the exit code.
func run(args []string, stdout, stderr io.Writer) int {
	r := &reporter{stdout: stdout, stderr: stderr, terminal: onTerminal, plain: onPlainTerminal}
	in, err := parse(args, stdout, stderr)
	if in.helped {
		return 0
	}
	c, file := &in.cli, &in.file
	r.global = c.global
	if field, ok := called(args); ok && !hidden(field) {
		r.command = commandName(field)
	}
	if err != nil {
		r.JSON = asksForJSON(args) // parsing ended before the flag was set
		if len(args) == 0 {
			_, _ = io.WriteString(stderr, briefly)
			return fault.ExitUsage
		}
		if file.err != nil {
			return r.fail(file.err)
		}
		return r.fail(mistaken(err, args))
	}
	c.Sources = file.sources
	if c.file = file.file; file.repo != nil {
		c.Repo, c.unknown, c.listed = file.repo.url, file.repo.err, file.repo.name
	}
	r.global = c.global
	code, err := in.selected.Target.Addr().Interface().(command).run(r, c.global)
	if err != nil {
		code = r.fail(err)
		if sig, ok := session.SignalOf(err); ok {
			session.Interrupt(sig, false)
		}
	}
	return code
}

func newParser(c *cli, options ...kong.Option) *kong.Kong {
	return complement(kong.Must(c, append(options, vars(), kong.Help(printHelp))...))
}

// complement adds what no tag says.
func complement(parser *kong.Kong) *kong.Kong {
	parser.Model.Name = "repolock"
	parser.Model.Help = "Run a backup, restore or prune while holding a lock that is kept in the backup repository itself."
	parser.Model.HelpFlag.Help = "Show the help of a command, and exit."
	return parser
}

// helpVars are the variables of help texts.
var helpVars = map[string]func() string{
	"schemes": schemes,
	"also":    func() string { return strings.Join(also.Examples(), ", ") },
	"faults":  faults,
}

func vars() kong.Vars {
	v := kong.Vars{}
	for name, value := range helpVars {
		v[name] = value()
	}
	return v
}

// noVars are these variables without their values, for a parser that prints no help: kong
// examines each value anew for each flag.
func noVars() kong.Vars {
	v := kong.Vars{}
	for name := range helpVars {
		v[name] = ""
	}
	return v
}

// schemes names the repository URLs for --help: "s3:, minio:, b2: or file:".
func schemes() string {
	all := open.Schemes()
	var buckets []string
	for _, s := range all[1:] {
		buckets = append(buckets, s.Name+":")
	}
	return strings.Join(buckets, ", ") + " or " + all[0].Name + ":"
}

// asksForJSON looks for --json before the wrapped command.
func asksForJSON(args []string) bool {
	if end := slices.Index(args, "--"); end >= 0 {
		args = args[:end]
	}
	return slices.Contains(args, "--json")
}

// command is a command of the command line. run returns the exit code, or an error that
// describe has an exit code for.
type command interface {
	run(*reporter, global) (int, error)
}

func (g global) place() session.Place {
	return session.Place{Repo: g.Repo, Name: g.Name, Listed: g.listed}
}

func (g global) locker() (*replock.Locker, error) {
	s, err := g.store(context.Background())
	if err != nil {
		return nil, err
	}
	return g.lockerOn(s, replock.Options{Observe: g.observe})
}

func (g global) lockerOn(s store.Store, opts replock.Options) (*replock.Locker, error) {
	opts.Name, opts.Version = g.Name, newBuild().Version
	l, err := replock.New(s, opts)
	if err != nil {
		return nil, fault.As(fault.Usage, err)
	}
	return l, nil
}
