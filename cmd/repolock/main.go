// Repolock runs a backup, restore or prune under a lock that it keeps in the backup repository itself.
package main

import (
	"cmp"
	"context"
	"io"
	"log"
	"os"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"github.com/alecthomas/kong"

	"github.com/repolock/repolock/cmd/internal/also"
	"github.com/repolock/repolock/cmd/internal/session"
	"github.com/repolock/repolock/cmd/internal/show"
	"github.com/repolock/repolock/internal/config"
	"github.com/repolock/repolock/internal/fault"
	"github.com/repolock/repolock/internal/lazyregexp"
	"github.com/repolock/repolock/replock"
	"github.com/repolock/repolock/store"
	"github.com/repolock/repolock/store/open"
)

func main() {
	log.SetOutput(io.Discard) // net/http logs answers without a request
	os.Exit(run(os.Args[1:], os.Stdout, os.Stderr))
}

// global are the flags of all commands.
type global struct {
	Repo   string `once:"" predictor:"repository" short:"r" placeholder:"REPOSITORY" env:"REPOLOCK_REPO" help:"Repository: a directory, an ${schemes} URL, or a name from the configuration file."`
	Name   string `once:"" config:"" placeholder:"NAME" help:"Use the lock of this name, for a repository that has several."`
	Config string `emptiable:"" predictor:"file" placeholder:"FILE" env:"REPOLOCK_CONFIG" help:"Configuration file, in place of the user's or the system's; an empty name is none."`
	JSON   bool   `name:"json" help:"Print JSON: results on stdout, an error on stderr."`
	Quiet  bool   `short:"q" help:"Print only errors."`
	Verb   bool   `short:"v" name:"verbose" help:"Print every event of the lock."`

	PrintVersion versionFlag `name:"version" help:"Show the version, and exit."`

	file    *config.File // nil: no file was read
	unknown error        // the reason why no repository has the name in Repo
	listed  string       // the lock's name in the configuration file

	Sources map[string]source `kong:"-"` // of the flags that the command line doesn't have
	Typed   map[string]string `kong:"-"` // values of the global flags that the command line has

	observe func(replock.Event) // called with the events of a look at locks, unless nil
}

// patience is reporter.patience. Tests replace it: they print in pipes, and their machine can be slow.
var patience = 5 * time.Second

// run runs a command line, and returns the exit code.
func run(args []string, stdout, stderr io.Writer) int {
	r := &show.Reporter{Stdout: stdout, Stderr: stderr, Terminal: show.StderrTerminal, Patience: patience}
	in, err := parse(args, stdout, stderr)
	if in.helped {
		return 0
	}
	if c, _ := called(args); c.tag != hidden {
		r.Command = c.name
	}
	r.Options = in.global.shown()
	if len(args) == 0 {
		_, _ = io.WriteString(stderr, briefly)
		return fault.ExitUsage
	}
	if err != nil {
		r.JSON = slices.Contains(beforeDashes(args), "--json") // parsing ended before the flag was set
		return r.Fail(mistaken(err, args))
	}
	explain(r, in, args)
	code, err := in.selected.Target.Interface().(command).run(r, in.global)
	if err != nil {
		code = r.Fail(err)
		if sig, ok := session.SignalOf(err); ok {
			session.Interrupt(sig, false)
		}
	}
	return code
}

// explain warns about a repository's name that is also a directory's, and about variables that have no effect.
func explain(r *show.Reporter, in *parsed, args []string) {
	if c, _ := called(args); c.tag != "" { // it reads no settings
		return
	}
	if in.settings.notice != "" {
		r.Say("%s", in.settings.notice)
	}
	for _, said := range unheeded(os.Environ(), r.AcquiresLock()) {
		r.Say("warning: %s", said)
	}
}

// vars are the variables of help texts. schemes is "s3:, minio:, b2: or file:". They are empty if the words don't
// ask for help: kong expands each variable once for each flag, which takes time.
func vars(words []string) kong.Vars {
	if !slices.ContainsFunc(words, mayHelp) {
		return kong.Vars{"schemes": "", "also": "", "faults": ""}
	}
	directory, buckets := open.Schemes()[0].Name, ""
	for _, s := range open.Schemes()[1:] {
		buckets += ", " + s.Name + ":"
	}
	schemes := strings.TrimPrefix(buckets, ", ") + " or " + directory + ":"
	return kong.Vars{"schemes": schemes, "also": strings.Join(also.Examples(), ", "), "faults": faults()}
}

// mayHelp reports whether a word asks for help: the command help, --help, or -h among other flags.
func mayHelp(word string) bool {
	return word == "help" || word == "--help" || strings.HasPrefix(word, "-") && !strings.HasPrefix(word, "--") && strings.Contains(word, "h")
}

// beforeDashes returns the words before --, which belong to repolock and not to the wrapped command.
func beforeDashes(args []string) []string {
	if end := slices.Index(args, "--"); end >= 0 {
		return args[:end]
	}
	return args
}

// shown returns the values that decide what is shown.
func (g global) shown() show.Options {
	return show.Options{JSON: g.JSON, Quiet: g.Quiet, Verbose: g.Verb, Place: g.place(), Flags: g.Typed}
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

type versionCmd struct{}

// build is the result of version in JSON. Fields are only ever added.
type build struct {
	Version  string `json:"version"`
	Go       string `json:"go"`
	System   string `json:"system"`
	Commit   string `json:"commit,omitempty"`
	Time     string `json:"commit_time,omitempty"`
	Modified bool   `json:"modified,omitempty"`
}

func (versionCmd) run(r *show.Reporter, _ global) (int, error) {
	b := newBuild()
	return 0, r.Result(b, b.String())
}

// versionFlag is --version.
type versionFlag bool

// BeforeReset prints the version and ends repolock. Kong calls it when it has parsed the flag.
func (versionFlag) BeforeReset(app *kong.Kong) error {
	_, err := io.WriteString(app.Stdout, newBuild().String())
	app.Exit(0)
	return err
}

// String returns the version for people. The first line has all that a bug report needs.
func (b build) String() string {
	text := "repolock " + b.Version
	if b.Commit != "" {
		text += ", commit " + b.Commit[:min(len(b.Commit), 8)] + " of " + b.Time[:min(len(b.Time), len(time.DateOnly))]
	}
	if b.Modified {
		text += " (modified)"
	}
	return text + "\n" + b.Go + ", " + b.System + "\n"
}

// pseudo returns the commit and its time from a pseudo-version. After go install MODULE@main the version is all
// that Go knows of the commit.
func pseudo(version string) (commit, at string) {
	parts := lazyregexp.New(`[-.](\d{14})-([0-9a-f]{12})(\+|$)`).FindStringSubmatch(version)
	if parts == nil {
		return "", ""
	}
	t, err := time.Parse("20060102150405", parts[1])
	if err != nil {
		return "", ""
	}
	return parts[2], t.Format(time.RFC3339)
}

func newBuild() build {
	b := build{Version: "(devel)", Go: runtime.Version(), System: runtime.GOOS + "/" + runtime.GOARCH}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return b
	}
	b.Version = cmp.Or(info.Main.Version, b.Version)
	b.Commit, b.Time = pseudo(b.Version)
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			b.Commit = s.Value
		case "vcs.time":
			b.Time = s.Value
		case "vcs.modified":
			b.Modified = s.Value == "true"
		}
	}
	return b
}
