package main

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/alecthomas/kong"

	"github.com/repolock/repolock/cmd/internal/cli"
	"github.com/repolock/repolock/cmd/internal/show"
	"github.com/repolock/repolock/internal/clock"
	"github.com/repolock/repolock/internal/config"
	"github.com/repolock/repolock/internal/fault"
	"github.com/repolock/repolock/internal/lazyregexp"
	"github.com/repolock/repolock/internal/man"
	"github.com/repolock/repolock/internal/text"
	"github.com/repolock/repolock/store/open"
)

// helpCmd prints the help of a command, as --help does, or of a topic that concerns several commands.
type helpCmd struct {
	Topic string `predictor:"topic" arg:"" optional:"" help:"A command, or a topic: flags, urls, exit-codes, env, config, programs, cron, json."`
}

func (c helpCmd) run(r *show.Reporter, _ global) (int, error) {
	if c.Topic == "" {
		return r.Print(reader.Overview())
	}
	app := reader.Model()
	for _, t := range topics {
		if t.Name == c.Topic {
			return r.Print(t.Text(app))
		}
	}
	if listed, ok := reader.Called([]string{c.Topic}); ok && !listed.IsHidden() {
		return r.Print(reader.CommandHelp(cli.NodeOf(app, c.Topic)))
	}
	like := reader.Meant(c.Topic)
	for _, t := range topics {
		if text.Resembles(c.Topic, t.Name) {
			like = append(like, t.Name)
		}
	}
	hint := "see repolock help"
	if len(like) > 0 {
		hint = "did you mean repolock help " + strings.Join(like, ", or repolock help ") + "?"
	}
	return 0, fault.Advise(fault.New(fault.Usage, "there is no help on %.80s", c.Topic), hint)
}

// topics are the texts of help that aren't about one command.
var topics = []cli.Topic{
	{Name: "flags", Brief: "the flags that several commands share", Text: cli.FlagsHelp},
	{Name: "urls", Brief: "how repositories and other systems' locks are named", Text: urlsHelp},
	{Name: "exit-codes", Brief: "what each exit code means", Text: func(*kong.Application) string { return exitCodes + "\n" }},
	{Name: "env", Brief: "the variables of the environment", Text: func(*kong.Application) string { return cli.HungItems(manEnvironment[0], manEnvironment[1:]...) }},
	{Name: "config", Brief: "the configuration file", Text: configHelp},
	{Name: "programs", Brief: "the lock of each command of restic, Borg, rclone, …", Text: programsHelp},
	{Name: "cron", Brief: "jobs of cron and systemd", Text: func(*kong.Application) string { return cronHelp }},
	{Name: "json", Brief: "what --json prints", Text: jsonHelp},
}

// summary is the beginning of the overview. repolock prints briefly if it has no arguments.
const (
	summary = `Run a backup, restore or prune under a lock in the backup repository itself:

  repolock -- restic backup /home        beside other backups and restores
  repolock --wait 1h -- restic prune     alone
  repolock status -- restic              who holds what
`
	briefly = summary + `
repolock knows the commands of restic, Borg, Kopia, rclone and Cloudstic. For
any other program: repolock backup, restore, prune or run. The commands:
repolock help
`
)

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
          conditions=  if-match=unquoted  listings=fresh  sse=  sse-key=  acl=
  minio:  alias= (of mc)  tls=false  region=  conditions=  listings=fresh
          sse=  sse-key=  acl=
  b2:     endpoint=
  sftp:   command=  listings=fresh

conditions=kept saves round trips on a server that honours conditional puts;
repolock doctor tests that. listings=fresh is for an rclone serve sftp without
its cache, and for an rclone serve s3 that all machines use: docs/sftp.md,
docs/rclone.md. sse=AES256, sse=aws:kms and acl= are headers of each put, if the
bucket's policy demands them.

Credentials are never part of a URL. They are read from:

`)
	for _, s := range open.Schemes() {
		if s.Environment != "" {
			lines := text.Wrap(s.Environment, cli.HelpWidth, strings.Repeat(" ", 10))
			fmt.Fprintf(&b, "  %-8s%s\n", s.Name+":", lines[10:])
		}
	}
	b.WriteString(`
restic's s3:https://HOST/BUCKET/PATH is s3://BUCKET/PATH?endpoint=https://HOST,
its b2:BUCKET:PATH is b2://BUCKET/PATH, and its sftp:USER@HOST:/PATH is
sftp://USER@HOST//PATH.

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

// configHelp describes the configuration file. Its keys are the flags with the tag config.
func configHelp(app *kong.Application) string {
	keys := ""
	for _, f := range cli.NodeOf(app, unnamed).Flags {
		if f.Tag.Has("config") {
			keys += f.Name + ", "
		}
	}
	return cli.HungItems("repolock reads the first of these files that exists:", append([]string{"the file of --config or REPOLOCK_CONFIG"}, manPlaces...)...) + `
It names repositories, and has defaults of flags:

  repo = "prod"                        # if no other repository is given
  [defaults]
  wait = "15m"
  [repositories.prod]
  url = "s3://bucket/prefix"           # or an absolute path
  if-held = "skip"

` + text.Wrap("Keys of [defaults] and of a repository: "+strings.TrimSuffix(keys, ", ")+". A repository also has the keys url and name, the name of a lock. repolock repos shows what is configured; docs/configuration.md describes the file in full.", cli.HelpWidth, "") + "\n"
}

const cronHelp = `In cron, so that a held lock is no failure, and only errors cause mail:

  0 2 * * *  repolock -q --if-held skip -- restic -r /srv/repo backup /home
  0 5 * * 0  repolock -q --wait 2h -- restic -r /srv/repo prune

cron has a short PATH, and doesn't read your shell's profile: write paths in
full, and set RESTIC_PASSWORD_FILE and the like in the crontab. repolock reads
~/.config/repolock/config.toml of the job's user, or /etc/repolock/config.toml.
With the same line on several machines, one of them runs the job each night:

  0 4 * * *  repolock -q run --exclusive --name job --once-per 12h -- /srv/job

The last success is stored beside the lock, in REPOLOCK_REPO. --if-held skip
alone skips a job that runs now, not one that has ended. Half of the time
between two starts is a good period.
--hint has the words of schedulers (require-global, prefer-global, node-local).
A line of monitoring:

  repolock status --all --older-than 6h || echo 'a backup hangs'

systemd units and timers are in the packages: docs/systemd.md. A unit that
tries again after 66, 69 and 74 needs RestartForceExitStatus=66 69 74.
`

// jsonHelp names the fields that the structs of --json have.
func jsonHelp(*kong.Application) string {
	return cli.HungItems(`With --json a command prints its result as one JSON object on stdout, and an error as one line of JSON on stderr. Fields are only ever added; docs/json.md explains each.`,
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
	app := reader.Model()
	return man.Page{
		App:         app,
		Usage:       cli.Usage,
		Shared:      cli.SharedFlags(app),
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

repolock [flags] -- PROGRAM … knows which lock each command of restic, rustic, Borg, Kopia, rclone and Cloudstic needs, and takes the place of the lock from the program's own settings. repolock help programs has the table. Before an exclusive command of restic it runs restic unlock, which removes restic's own stale locks, unless --no-unlock is given.

The lock of a crashed holder expires by itself. A command starts only under its lock, and repolock stops it if the lock is lost, except in the cases that docs/promises.md names. If another holder has the lock, repolock names it and exits at once, or waits for it (--wait).

The repository is a directory, a directory on an SSH server (SFTP), or a bucket on S3, on a server with its protocol, on MinIO or on Backblaze B2. repolock reads credentials from the places where the programs of these stores keep them. They are never part of the URL.

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
	"XDG_RUNTIME_DIR: the keepers of acquire listen in its folder repolock, or in TMPDIR if it is unset, or in /tmp if the path is too long",
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
	"A backup and a prune never run together, on any machines, if RESTIC_REPOSITORY names the same repository:",
	"repolock -- restic backup /home",
	"repolock --wait 1h -- restic prune",
	"The same, with the lock's mode and its repository on the command line:",
	"repolock -r s3://bucket/prefix backup -- restic backup /home",
	"repolock -r s3://bucket/prefix prune --wait 1h -- sh -c 'restic unlock && restic prune'",
	"In cron, if a held lock must not count as a failure: repolock -r prod backup --if-held skip -- restic backup /home",
	"With a lock in Redis that another scheduler takes: repolock --also 'redis://localhost/0?key=nightly' -- restic prune",
	"The locks and their holders: repolock -r prod status --watch",
}
