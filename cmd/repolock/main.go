// Repolock runs a backup, restore or prune while it holds a lock that is kept
// in the backup repository itself.
package main

import (
	"context"
	"errors"
	"io"
	"os"
	"slices"

	"github.com/alecthomas/kong"

	"github.com/repolock/repolock/internal/child"
	"github.com/repolock/repolock/internal/config"
	"github.com/repolock/repolock/replock"
	"github.com/repolock/repolock/store"
)

func main() {
	child.GuardMain()
	os.Exit(run(os.Args[1:], os.Stdout, os.Stderr))
}

// cli is the command line. Flags that all commands have are in global.
type cli struct {
	global

	Backup     backupCmd     `cmd:"" help:"Run a backup under a shared lock."`
	Restore    restoreCmd    `cmd:"" help:"Run a restore under a shared lock."`
	Prune      pruneCmd      `cmd:"" help:"Run a prune under the exclusive lock."`
	Run        runCmd        `cmd:"" help:"Run any other command under a lock, or bare."`
	Acquire    acquireCmd    `cmd:"" help:"Take a lock for a script, which is held in the background."`
	Check      checkCmd      `cmd:"" bare:"" help:"Exit with 0 if such a lock is held now."`
	Renew      renewCmd      `cmd:"" bare:"" help:"Refresh such a lock now."`
	Release    releaseCmd    `cmd:"" bare:"" help:"Release such a lock."`
	Status     statusCmd     `cmd:"" help:"Show every lock in the repository. Never writes."`
	History    historyCmd    `cmd:"" bare:"" help:"Show what an audit log tells: who held what, and when."`
	BreakLock  breakCmd      `cmd:"" help:"Delete locks, whoever holds them. For emergencies."`
	Doctor     doctorCmd     `cmd:"" help:"Try out what a store does, and whether it is fit."`
	Torture    tortureCmd    `cmd:"" help:"Have processes contend for a lock, and look whether it holds."`
	Repos      reposCmd      `cmd:"" help:"Show the repositories that the configuration file names."`
	Completion completionCmd `cmd:"" bare:"" help:"Print what a shell has to read so that it completes repolock's command line."`
	Man        manCmd        `cmd:"" bare:"" help:"Print the manual page, repolock(1)."`
	Version    versionCmd    `cmd:"" bare:"" help:"Show the version."`

	Complete     completeCmd     `cmd:"" hidden:"" bare:""`
	Keeper       keeperCmd       `cmd:"" hidden:"" bare:""`
	TortureChild tortureChildCmd `cmd:"" hidden:"" bare:""`
}

type global struct {
	Repo   string `predictor:"repository" short:"r" placeholder:"REPOSITORY" env:"REPOLOCK_REPO" help:"Repository: a directory, an s3:, minio:, b2: or file: URL, or a name from the configuration file."`
	Name   string `config:"" help:"Use the lock of this name, for a repository that has several."`
	Config string `predictor:"file" placeholder:"FILE" env:"REPOLOCK_CONFIG" help:"Configuration file, in place of the user's or the system's; an empty name is none."`
	JSON   bool   `name:"json" help:"Print JSON: results on stdout, an error on stderr."`
	Quiet  bool   `short:"q" help:"Say nothing but errors."`
	Verb   bool   `short:"v" name:"verbose" help:"Say every event of the lock."`

	file    *config.File // that was read, if any
	unknown error        // why it isn't known which repository is meant
	listed  string       // the lock's name that the file has for the repository
}

// run is main without the process: it parses, runs and returns the exit code.
func run(args []string, stdout, stderr io.Writer) int {
	var c cli
	r := &reporter{stdout: stdout, stderr: stderr, terminal: onTerminal}
	helped := false
	file := &settings{}
	parser := newParser(&c,
		kong.Writers(stdout, stderr),
		kong.Exit(func(int) { helped = true }),
		kong.ConfigureHelp(kong.HelpOptions{Compact: true, NoExpandSubcommands: true}),
		kong.UsageOnError(),
		kong.Resolvers(file),
	)
	k, err := parser.Parse(args)
	if helped {
		return 0
	}
	r.global = c.global
	if err != nil {
		r.JSON = asksForJSON(args) // parsing ended before it was set
		if file.err != nil {
			return r.fail(file.err)
		}
		return r.fail(usageError{err})
	}
	if c.file = file.file; file.repo != nil {
		c.Repo, c.unknown, c.listed = file.repo.url, file.repo.err, file.repo.name
	}
	r.global = c.global
	code, err := k.Selected().Target.Addr().Interface().(command).run(r, c.global)
	if err != nil {
		code = r.fail(err)
		if s, ok := errors.AsType[signalled](err); ok {
			interrupt(s.signal, false)
		}
	}
	return code
}

func newParser(c *cli, options ...kong.Option) *kong.Kong {
	parser, err := kong.New(c, append(options, kong.Name("repolock"),
		kong.Description("Run a backup, restore or prune while holding a lock that is kept in the backup repository itself."))...)
	if err != nil {
		panic(err) // the tags above are wrong
	}
	parser.Model.HelpFlag.Help = "Show this, or the help of a command, and exit."
	parser.Model.Detail = exitCodes
	return parser
}

// asksForJSON looks for --json before the command that is to be run.
func asksForJSON(args []string) bool {
	if end := slices.Index(args, "--"); end >= 0 {
		args = args[:end]
	}
	return slices.Contains(args, "--json")
}

// command is what can be selected on the command line. It returns the exit code,
// or an error that tells it.
type command interface {
	run(*reporter, global) (int, error)
}

// locker opens the repository.
func (g global) locker(ctx context.Context, opts replock.Options) (*replock.Locker, error) {
	s, err := g.store(ctx)
	if err != nil {
		return nil, err
	}
	return g.lockerOn(s, opts)
}

func (g global) lockerOn(s store.Store, opts replock.Options) (*replock.Locker, error) {
	opts.Name, opts.Version = g.Name, version()
	l, err := replock.New(s, opts)
	if err != nil {
		return nil, usageError{err}
	}
	return l, nil
}
