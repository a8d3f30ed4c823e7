package main

import (
	"fmt"
	"io"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/alecthomas/kong"

	"github.com/repolock/repolock/cmd/internal/show"
	"github.com/repolock/repolock/internal/clock"
	"github.com/repolock/repolock/internal/config"
	"github.com/repolock/repolock/internal/fault"
	"github.com/repolock/repolock/internal/lazyregexp"
	"github.com/repolock/repolock/internal/man"
	"github.com/repolock/repolock/internal/text"
	"github.com/repolock/repolock/store/open"
)

// helpWidth is the width of all help, in columns. Most terminals begin with this width.
const helpWidth = 80

// helpCmd prints the help of a command, as --help does, or of a topic that concerns several commands.
type helpCmd struct {
	Topic string `predictor:"topic" arg:"" optional:"" help:"A command, or a topic: flags, urls, exit-codes, env, config, cron, json."`
}

func (c helpCmd) run(r *show.Reporter, _ global) (int, error) {
	if c.Topic == "" {
		return r.Print(overview())
	}
	app := model()
	for _, t := range topics {
		if t.name == c.Topic {
			return r.Print(t.text(app))
		}
	}
	if listed, ok := called([]string{c.Topic}); ok && listed.tag != hidden {
		return r.Print(commandHelp(nodeOf(app, c.Topic)))
	}
	hint := "see repolock help"
	for _, t := range topics {
		if strings.HasPrefix(t.name, c.Topic) {
			hint = "did you mean repolock help " + t.name + "?"
		}
	}
	return 0, fault.Advise(fault.New(fault.Usage, "there is no help on %.80s", c.Topic), hint)
}

// topics are the texts of help that aren't about one command.
var topics = []struct {
	name, brief string
	text        func(*kong.Application) string
}{
	{"flags", "the flags that several commands share", flagsHelp},
	{"urls", "how repositories and other systems' locks are named", urlsHelp},
	{"exit-codes", "what each exit code means", func(*kong.Application) string { return exitCodes + "\n" }},
	{"env", "the variables of the environment", func(*kong.Application) string { return hung(manEnvironment[0], manEnvironment[1:]...) }},
	{"config", "the configuration file", configHelp},
	{"cron", "jobs of cron and systemd", func(*kong.Application) string { return cronHelp }},
	{"json", "what --json prints", jsonHelp},
}

// printHelp prints the help for --help.
func printHelp(_ kong.HelpOptions, ctx *kong.Context) error {
	help := overview()
	if node := ctx.Selected(); node != nil {
		help = commandHelp(node)
	}
	_, err := io.WriteString(ctx.Stdout, help)
	return err
}

// summary is the beginning of the overview. repolock prints briefly if it has no arguments.
const (
	summary = `Run a backup, restore or prune under a lock in the backup repository itself:

  repolock backup -- restic backup /home     beside other backups and restores
  repolock prune --wait 1h -- restic prune   alone
  repolock status                            who holds what
`
	briefly = summary + `
-r, REPOLOCK_REPO or a configuration file names the repository. The commands:
repolock help
`
)

func overview() string {
	var b strings.Builder
	b.WriteString(summary)
	for _, g := range groups[:len(groups)-1] {
		fmt.Fprintf(&b, "\n%s:\n", g.title)
		for _, c := range g.commands {
			fmt.Fprintf(&b, "  %-11s %s\n", c.name, c.help)
		}
	}
	b.WriteString("\nMore help:\n  repolock help COMMAND      a command, with its flags and examples\n")
	for _, t := range topics {
		fmt.Fprintf(&b, "  %-26s %s\n", "repolock help "+t.name, t.brief)
	}
	return b.String()
}

func nodeOf(app *kong.Application, name string) *kong.Node {
	i := slices.IndexFunc(app.Children, func(n *kong.Node) bool { return n.Name == name })
	return app.Children[i]
}

// commandHelp is the help of one command: its synopsis, two examples, its details, and its flags. A flag that
// several commands share has one line, or only its name if the flag is rare.
func commandHelp(node *kong.Node) string {
	var b strings.Builder
	fmt.Fprintf(&b, "Usage: repolock %s\n", usage(node))
	if listed, _ := called([]string{node.Name}); listed.example != "" { // a hidden command has none
		fmt.Fprintf(&b, "\n%s\n\n  %s\n  %s\n", text.Wrap(node.Help, helpWidth, ""), listed.example, listed.second)
	}
	if node.Detail != "" {
		for paragraph := range strings.SplitSeq(node.Detail, "\n\n") {
			fmt.Fprintf(&b, "\n%s\n", text.Wrap(paragraph, helpWidth, ""))
		}
	}
	var own, shared string
	also := "Also "
	for _, f := range visible(node.Flags) {
		switch brief := f.Tag.Get("brief"); {
		case f.Tag.Has("rare"):
			also += "--" + f.Name + ", "
		case brief != "":
			shared += described(f, brief)
		default:
			own += described(f, f.Help)
		}
	}
	if own != "" {
		b.WriteString("\n" + own)
	}
	if shared != "" {
		b.WriteString("\nAbout the lock (in full: repolock help flags):\n" + shared)
	}
	if !node.Tag.Has("noconfig") {
		also += "--repo (-r), --name, --config, "
	}
	also += "--json, -q and -v: see repolock help flags"
	b.WriteString("\n" + text.Wrap(also, helpWidth, "") + "\n")
	return b.String()
}

// usage returns the synopsis of a command: run --shared|--exclusive|--no-lock [flags] -- COMMAND
func usage(node *kong.Node) string {
	words := []string{node.Name}
	var modes []string
	for _, f := range node.Flags {
		if slices.Contains(f.Xor, "mode") {
			modes = append(modes, "--"+f.Name)
		}
	}
	if len(modes) > 0 {
		words = append(words, strings.Join(modes, "|"))
	}
	words = append(words, "[flags]")
	for _, p := range node.Positional {
		word := strings.ToUpper(p.Name)
		if p.Enum != "" {
			word = strings.ReplaceAll(p.Enum, ",", "|")
		}
		switch {
		case p.Passthrough:
			word = "-- " + word
		case !p.Required:
			word = "[" + word + "]"
		}
		words = append(words, word)
	}
	return strings.Join(words, " ")
}

func visible(flags []*kong.Flag) []*kong.Flag {
	return slices.DeleteFunc(slices.Clone(flags), func(f *kong.Flag) bool { return f.Hidden })
}

// flagsHelp describes the flags of all commands, and the flags that several commands share.
func flagsHelp(app *kong.Application) string {
	var b strings.Builder
	b.WriteString("Flags of all commands:\n")
	for _, f := range visible(app.Flags) {
		b.WriteString(described(f, f.Help))
	}
	b.WriteString("\nFlags of backup, restore, prune, run, and mostly of acquire:\n")
	for _, f := range sharedFlags(app) {
		b.WriteString(described(f, f.Help))
	}
	return b.String()
}

// sharedFlags returns the flags that several commands have: they are tagged with brief.
func sharedFlags(app *kong.Application) []*kong.Flag {
	return slices.DeleteFunc(visible(nodeOf(app, "backup").Flags), func(f *kong.Flag) bool { return f.Tag.Get("brief") == "" })
}

// flagColumn is the column in which the descriptions of flags begin.
const flagColumn = 29

// described returns a flag and its help, in lines.
func described(f *kong.Flag, help string) string {
	name := "  " + man.Names(f)
	lines := text.Wrap(help, helpWidth, strings.Repeat(" ", flagColumn))
	if help == "" { // of a hidden command
		return name + "\n"
	}
	if len(name)+2 > flagColumn {
		return name + "\n" + lines + "\n"
	}
	return name + lines[len(name):] + "\n"
}

func urlsHelp(*kong.Application) string {
	var b strings.Builder
	b.WriteString("--repo (-r), REPOLOCK_REPO or a configuration file names the repository:\n\n")
	row := func(url, means string) { fmt.Fprintf(&b, "  %-32s%s\n", url, means) }
	row("/srv/repo, ../repo", "a directory, the same for all machines")
	for _, s := range open.Schemes() {
		row(s.Example, s.Help)
	}
	row("prod", "a name in the configuration file")
	b.WriteString(`
Options follow a question mark, with & between them:

  s3:     endpoint=https://HOST  region=  profile=  path-style=true
          conditions=  if-match=unquoted
  minio:  alias= (of mc)  tls=false  region=  conditions=
  b2:     endpoint=

conditions=kept saves round trips on a server that is known to keep conditional
puts; repolock doctor says whether it does.

Credentials are never part of a URL. They are read from:

`)
	for _, s := range open.Schemes() {
		if s.Environment != "" {
			lines := text.Wrap(s.Environment, helpWidth, strings.Repeat(" ", 10))
			fmt.Fprintf(&b, "  %-8s%s\n", s.Name+":", lines[10:])
		}
	}
	b.WriteString(`
restic's s3:https://HOST/BUCKET/PATH is s3://BUCKET/PATH?endpoint=https://HOST,
its b2:BUCKET:PATH is b2://BUCKET/PATH.

Locks of other systems (--also):

  redis://HOST/DB?key=NAME        postgres://HOST/DB?key=NAME
  tower-fleet:DIR/NAME            beads:DIR
  repo:URL#NAME                   the named lock of another repository
`)
	return b.String()
}

const exitCodes = `Exit codes: the command's own; 128+n if signal n ended it;
  1    break-lock: no such lock, or the answer was no; status: a lock is older
  64   wrong usage
  66   the repository doesn't exist: no such bucket or directory
  69   no answer from the store or a script's keeper
  70   torture could not decide
  74   the store gave a wrong answer, or is full; or another failure
  75   another holder has the lock (--held-exit-code changes it)
  77   no permission
  78   the store is unfit, or configured wrongly
  79   the lock was lost, even if the command exited 0; or its keeper is gone
  126  the command can't be executed
  127  the command wasn't found`

// hung returns a paragraph, and items whose further lines are indented.
func hung(paragraph string, items ...string) string {
	var b strings.Builder
	b.WriteString(text.Wrap(paragraph, helpWidth, "") + "\n\n")
	for _, item := range items {
		b.WriteString("  " + strings.TrimLeft(text.Wrap(item, helpWidth, "    "), " ") + "\n")
	}
	return b.String()
}

// configHelp describes the configuration file. Its keys are the flags with the tag config.
func configHelp(app *kong.Application) string {
	keys := ""
	for _, f := range nodeOf(app, "backup").Flags {
		if f.Tag.Has("config") {
			keys += f.Name + ", "
		}
	}
	return hung("repolock reads the first of these files that exists:", append([]string{"the file of --config or REPOLOCK_CONFIG"}, manPlaces...)...) + `
It names repositories, and has defaults of flags:

  repo = "prod"                        # if no other repository is given
  [defaults]
  wait = "15m"
  [repositories.prod]
  url = "s3://bucket/prefix"           # or an absolute path
  if-held = "skip"

` + text.Wrap("Keys of [defaults] and of a repository: "+strings.TrimSuffix(keys, ", ")+". A repository also has url, and name for a lock's name. repolock repos shows what is configured; docs/configuration.md describes the file in full.", helpWidth, "") + "\n"
}

const cronHelp = `In cron, so that a held lock is no failure, and only errors cause mail:

  0 2 * * *  repolock -r prod backup --if-held skip -q -- restic backup /home
  0 5 * * 0  repolock -r prod prune --wait 2h -q -- restic prune

cron has a short PATH, no shell profile and no ~/.config of yours: write paths
in full, and name the configuration file if it isn't /etc/repolock/config.toml.
--hint has the words of schedulers (require-global, prefer-global, node-local).
A line of monitoring:

  repolock status --all --older-than 6h || echo 'a backup hangs'

systemd units and timers are in the packages: docs/systemd.md. A unit that
tries again after 66, 69 and 74 needs RestartForceExitStatus=66 69 74.
`

// jsonHelp names the fields that the structs of --json have.
func jsonHelp(*kong.Application) string {
	return hung(`With --json a command prints its result as one JSON object on stdout, and an error as one line of JSON on stderr. Fields are only ever added; docs/json.md explains each.`,
		"an error: "+fields(reflect.TypeFor[show.JSONError]()), "status: "+fields(reflect.TypeFor[jsonStatus]()), "a lock: "+fields(reflect.TypeFor[show.JSONLock]()),
		"version: "+fields(reflect.TypeFor[build]()), "repos: "+fields(reflect.TypeFor[jsonRepos]()))
}

// fields returns the names of a struct's fields in JSON.
func fields(t reflect.Type) string {
	var names []string
	for _, f := range reflect.VisibleFields(t) {
		if name, _, _ := strings.Cut(f.Tag.Get("json"), ","); name != "" && name != "-" {
			names = append(names, name)
		}
	}
	return strings.Join(names, ", ")
}

// manCmd prints the manual page. It has the same texts about commands and flags as --help.
type manCmd struct{}

func (manCmd) run(r *show.Reporter, _ global) (int, error) {
	return r.Print(manual())
}

func manual() string {
	intro, codes, _ := strings.Cut(exitCodes, "\n")
	app := model()
	return man.Page{
		App:         app,
		Usage:       usage,
		Shared:      sharedFlags(app),
		Date:        manDate(),
		Description: manDescription,
		Sections: []man.Section{
			{Title: "Repositories", Text: urlsHelp(app)},
			{Title: "Exit status", Text: intro, Items: strings.Split(columns.ReplaceAllString(codes, "$1: "), "\n")},
			{Title: "Environment", Text: manEnvironment[0], Items: manEnvironment[1:]},
			{Title: "Files", Text: "repolock reads the first of these files that exists:", Items: append([]string{"the file that --config or REPOLOCK_CONFIG names"}, manPlaces...)},
			{Title: "Examples", Text: manExamples[0], Items: manExamples[1:]},
			{Title: "See also", Text: "restic(1), borg(1), flock(1)"},
		},
	}.String()
}

var columns = lazyregexp.New(`(?m)^ +([0-9]+) +`)

// manDate returns the day of the commit if it is known, so that builds of one commit have the same page.
func manDate() time.Time {
	if day, err := time.Parse(time.RFC3339, newBuild().Time); err == nil {
		return day
	}
	return clock.System{}.Now()
}

const manDescription = `repolock wraps any backup, restore or prune, in whatever program you use. Backups and restores can run side by side; a prune runs alone. The lock is kept in the backup repository itself, so that it works across machines, and with no lock server.

The lock of a crashed holder expires by itself. A command starts only under its lock, and repolock stops it if the lock is lost, except in the cases that docs/promises.md names. If another holder has the lock, repolock names it and exits at once, or waits for it (--wait).

The repository is a directory, or on S3 or a server with its protocol, on MinIO, or on Backblaze B2. repolock reads credentials from the places where the programs of these stores keep them. They are never part of the URL.

With --also, repolock also holds locks that other programs keep in Redis, in PostgreSQL, or in files, all of them or none.`

var manEnvironment = slices.Concat([]string{
	"A flag overrides a variable, and a variable overrides the configuration file. repolock reads these:",
	"REPOLOCK_REPO: the repository, as --repo",
	"REPOLOCK_CONFIG: the configuration file, as --config",
	"REPOLOCK_AUDIT: the audit log, as --audit",
	"REPOLOCK_JOB: the job's name, as --job",
	"REPOLOCK_REDIS_PASSWORD: the password for redis: locks of --also",
	"REPOLOCK_POSTGRES_PASSWORD: the password for postgres: locks of --also",
	"REPOLOCK_TOKEN: the token for check, renew and release",
	"XDG_RUNTIME_DIR: the keepers of acquire listen in repolock/ there; if it is unset, in TMPDIR; if the path is too long, in /tmp",
}, schemeVariables(), []string{
	"It sets these for the command: REPOLOCK_HELD=1, REPOLOCK_REPO (without credentials, and only if there is a repository), REPOLOCK_MODE (shared or exclusive), REPOLOCK_ID, REPOLOCK_FENCE with --fence, and REPOLOCK_OUTER and REPOLOCK_NAME, for a repolock that it runs",
})

// schemeVariables returns an item of the manual page for each scheme with credentials.
func schemeVariables() []string {
	var items []string
	for _, s := range open.Schemes() {
		if s.Environment != "" {
			items = append(items, s.Environment+", for "+s.Name+": repositories")
		}
	}
	return items
}

var manPlaces = append([]string{"$XDG_CONFIG_HOME/repolock/config.toml, or ~/.config/repolock/config.toml"}, config.System()...)

var manExamples = []string{
	"Two commands that exclude each other, on any machines:",
	"repolock -r s3://bucket/prefix backup -- restic backup /home",
	"repolock -r s3://bucket/prefix prune --wait 1h -- restic prune",
	"In cron, where a held lock is no failure: repolock -r prod backup --if-held skip -- restic backup /home",
	"With a lock in Redis that another scheduler takes: repolock -r prod prune --also 'redis://localhost/0?key=nightly' -- restic prune",
	"The locks and their holders: repolock -r prod status --watch",
}
