package main

import (
	"slices"
	"strings"
	"time"

	"github.com/repolock/repolock/internal/clock"
	"github.com/repolock/repolock/internal/config"
	"github.com/repolock/repolock/internal/lazyregexp"
	"github.com/repolock/repolock/internal/man"
	"github.com/repolock/repolock/store/open"
)

// manCmd prints the manual page: the commands and flags as in --help, with their common parts.
type manCmd struct{}

func (manCmd) run(r *reporter, _ global) (int, error) {
	return r.print(manual())
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
			{Title: "Repositories", Text: urlsHelp()},
			{Title: "Exit status", Text: intro, Items: strings.Split(columns.ReplaceAllString(codes, "$1: "), "\n")},
			{Title: "Environment", Text: manEnvironment[0], Items: manEnvironment[1:]},
			{Title: "Files", Text: "repolock reads the first of these that exists:", Items: append([]string{"the one that --config or REPOLOCK_CONFIG names"}, manPlaces...)},
			{Title: "Examples", Text: manExamples[0], Items: manExamples[1:]},
			{Title: "See also", Text: "restic(1), borg(1), flock(1)"},
		},
	}.String()
}

var columns = lazyregexp.New(`(?m)^ +([0-9]+) +`)

// manDate returns the day of the source if it is known: the same source has the same page.
func manDate() time.Time {
	if day, err := time.Parse(time.RFC3339, newBuild().Time); err == nil {
		return day
	}
	return clock.System{}.Now()
}

const manDescription = `repolock wraps any backup, restore or prune, in whatever program you use. Backups and restores may run side by side; a prune runs alone. The lock is kept in the backup repository itself, so that it works across machines, and with no lock server.

The lock of a crashed holder expires by itself, and a command never runs while its lock isn't held. If another holder has the lock, repolock names it and exits at once, or waits for it (--wait).

The repository is a directory, on S3 and what speaks its protocol, on MinIO, or on Backblaze B2. Credentials are read from where the programs of those stores keep them, and are never part of the URL.

With --also, repolock also holds locks that other programs keep in Redis, in PostgreSQL, or in files, all of them or none.`

var manEnvironment = slices.Concat([]string{
	"A flag comes before a variable, and a variable before the configuration file. repolock reads these:",
	"REPOLOCK_REPO: the repository, as --repo",
	"REPOLOCK_CONFIG: the configuration file, as --config",
	"REPOLOCK_AUDIT: the audit log, as --audit",
	"REPOLOCK_JOB: the job's name, as --job",
	"REPOLOCK_REDIS_PASSWORD: the password for redis: locks of --also",
	"REPOLOCK_POSTGRES_PASSWORD: the password for postgres: locks of --also",
	"REPOLOCK_TOKEN: the token for check, renew and release",
	"XDG_RUNTIME_DIR: the keepers of acquire listen in repolock/ there; else in TMPDIR; in /tmp if the paths of both are too long",
}, schemeVariables(), []string{
	"The command finds REPOLOCK_HELD=1, REPOLOCK_REPO (without credentials, and only if there is a repository), REPOLOCK_MODE (shared or exclusive), REPOLOCK_ID, REPOLOCK_FENCE with --fence, and REPOLOCK_OUTER and REPOLOCK_NAME, for a repolock that it runs",
})

// schemeVariables has an item of the manual page for each scheme that reads credentials from
// the environment.
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
