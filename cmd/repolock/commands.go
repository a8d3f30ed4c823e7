package main

import (
	"strings"

	"github.com/alecthomas/kong"

	"github.com/repolock/repolock/cmd/internal/also"
	"github.com/repolock/repolock/cmd/internal/cli"
	"github.com/repolock/repolock/cmd/internal/show"
	"github.com/repolock/repolock/replock"
	"github.com/repolock/repolock/store/open"
)

// command is a command of the command line. run returns the exit code, or an error that
// show.Reporter turns into one.
type command interface {
	run(*show.Reporter, global) (int, error)
}

// groups are all commands, in the order of the overview. Help leaves out the last group: programs run
// its commands, not people.
var groups = []cli.Group{
	{Title: "Run a program under a lock", Commands: []cli.Entry{
		{Name: "backup", Help: "Run a backup under a shared lock.", Command: wrapCmd{mode: replock.Shared, operation: "backup", word: "backup"},
			Example: "repolock -r s3://bucket/prefix backup -- restic backup /home",
			Second:  "repolock -r prod backup --if-held skip -- ./nightly-backup", Detail: ofEnvironment},
		{Name: "restore", Help: "Run a restore under a shared lock.", Command: wrapCmd{mode: replock.Shared, operation: "restore", word: "restore"},
			Example: "repolock -r prod restore -- restic restore latest --target /tmp/back",
			Second:  "repolock -r /mnt/repo restore --wait 15m -- rclone copy b2:bucket /srv", Detail: ofEnvironment},
		{Name: "prune", Help: "Run a prune under the exclusive lock.", Command: wrapCmd{mode: replock.Exclusive, operation: "prune"},
			Example: "repolock -r prod prune --wait 1h -- sh -c 'restic unlock && restic prune'",
			Second:  "repolock -r prod prune --dry-run -- ./clean-up", Detail: ofEnvironment},
		{Name: "run", Help: "Run any other command under a lock, or without one.", Command: runCmd{},
			Example: "repolock -r prod run --exclusive --operation check -- restic check", Second: "repolock run --no-lock -- restic snapshots",
			Detail: ofEnvironment + " The locks of --also alone need neither --shared nor --exclusive."},
	}},
	{Title: "Hold a lock in a script", Commands: []cli.Entry{
		{Name: "acquire", Help: "Acquire a lock for a script, and hold it in the background.", Command: acquireCmd{},
			Example: `TOKEN=$(repolock -r prod acquire --shared --for-pid $$) || exit`,
			Second:  `LOCK=$(repolock acquire --shared --export --for-pid $$) && eval "$LOCK"`,
			Detail: `Prints a token, for check, renew and release, which also read it from REPOLOCK_TOKEN. A process in the background, the
keeper, holds and refreshes the lock until release, or until the process that called has ended. The script runs repolock
check before each step that needs the lock (docs/scripts.md).`},
		{Name: "check", Help: "Exit with 0 if the lock of acquire is held now.", Command: tokenCmd{do: "check"}, Tag: cli.NoConfig,
			Example: `repolock check "$token" || exit`, Second: `REPOLOCK_TOKEN=$token repolock check`,
			Detail: `Looks into the repository, and so notices that the lock was broken. If the repository can't be reached, the lock is held as
long as its lease lasts, and a warning says so. Exits with 79 if the lock was lost, and prints why, or if its keeper is gone.`},
		{Name: "renew", Help: "Refresh the lock of acquire now.", Command: tokenCmd{do: "renew"}, Tag: cli.NoConfig,
			Example: `repolock renew "$token" && ./one-long-step`, Second: `REPOLOCK_TOKEN=$token repolock renew`,
			Detail: `The keeper refreshes its lock by itself. Renew before a step that takes nearly as long as the ttl and can't be interrupted.
Exits with 79 as check does, and with 69 if the lock is held and couldn't be refreshed.`},
		{Name: "release", Help: "Release the lock of acquire.", Command: tokenCmd{do: toRelease}, Tag: cli.NoConfig,
			Example: `repolock release "$token"`, Second: `REPOLOCK_TOKEN=$token repolock release`,
			Detail: `Exits with 79 if the lock was lost before, or if it is gone because it was released already or its keeper was killed: the
work under it might not have been protected. Exits with 69 if the lock couldn't be deleted and is left to expire.`},
	}},
	{Title: "Look at locks, and break them", Commands: []cli.Entry{
		{Name: "status", Help: "Show every lock in the repository. Changes none.", Command: statusCmd{},
			Example: "repolock -r prod status --watch", Second: "repolock status --all --older-than 6h",
			Detail: `repolock status -- restic shows the locks of repolock -- restic. The table fits the terminal, or COLUMNS. In a
pipe or a file without COLUMNS nothing is cut. If it is too wide, repolock cuts names, then omits LAST
SEEN, FOR and ID.`},
		{Name: "history", Help: "Show from an audit log who held which lock, and when.", Command: historyCmd{}, Tag: cli.NoConfig,
			Example: "repolock history /var/log/repolock.jsonl", Second: "zcat log.gz | repolock history --svg night.svg -",
			Detail: `Prints the locks of an audit log: who held or waited for each and when, which were refused, and which were removed.
On a narrow terminal it leaves out MODE and WAITED, and cuts names; in a pipe it cuts nothing.`},
		{Name: "break-lock", Help: "Delete locks of any holder. For emergencies.", Command: breakCmd{},
			Example: "repolock -r prod break-lock --dead", Second: "repolock -r prod break-lock --id ID --yes",
			Detail: `Deletes the exclusive lock, every shared lock and every intent, of any age and holder. A holder that still
runs sees that at its next look, every 10s by default, and stops; until then it goes on. Break locks only when you are
certain that no operation is running.

repolock break-lock -- restic breaks the locks of repolock -- restic. Other programs work in the same way.`},
	}},
	{Title: "Try out a store", Commands: []cli.Entry{
		{Name: "doctor", Help: "Try out whether a store is fit for locks.", Command: doctorCmd{},
			Example: "repolock doctor s3://bucket/prefix", Second: "repolock -r prod --json doctor",
			Detail: `Tries out, with some 1,000 requests, what the store does and allows. Prints what repolock will do there and whether the
store is fit. Touches no lock: it writes below index/locks/doctor-TIME-ID/, the place of a lock of that name,
or with --name below index/locks/NAME/doctor-TIME-ID/, and deletes what it wrote. It can run at any time.

repolock doctor -- restic sends no request. It prints where repolock -- restic locks, and the lock of each command.
Other programs work in the same way.

Exit codes: 0 the store is fit; 66 it doesn't exist; 69 it can't be reached; 74 scratch objects are left there; 77 permissions are lacking; 78 it is unfit.`},
		{Name: "torture", Help: "Let processes contend for a lock, and see whether it holds.", Command: tortureCmd{},
			Example: "repolock torture /mnt/repo --duration 10m", Second: "repolock -r prod torture --clients 10",
			Detail: `Lets processes contend for a lock of its own, kills and stops them, and checks that none of them ever wrote beside an
exclusive holder. Touches no other lock and no backup: it writes below index/locks/torture-TIME-ID/ and deletes what it
wrote. Each lock costs some 30 requests. See docs/evidence/torture.md.

docs/evidence/torture-others.md describes how to try the locks of other programs.

Exit codes: 0 no violation was found; 70 it isn't known; 78 a violation was found; 66, 69, 77 no process got the lock.`},
	}},
	{Title: "More", Commands: []cli.Entry{
		{Name: "repos", Help: "Show the repositories of the configuration file.", Command: reposCmd{},
			Example: "repolock repos", Second: "repolock --config /etc/repolock/config.toml repos",
			Detail: `repolock reads the first configuration file that exists: the file of --config or REPOLOCK_CONFIG,
repolock/config.toml in the user's settings, /etc/repolock/config.toml. docs/configuration.md describes it in full.`},
		{Name: "completion", Help: "Print a script that completes command lines in a shell.", Command: completionCmd{}, Tag: cli.NoConfig,
			Example: "source <(repolock completion bash)", Second: "repolock completion fish | source",
			Detail: `The lines above are for bash and fish; in zsh, after compinit: source <(repolock completion zsh). After --, the shell completes the wrapped command.`},
		{Name: "man", Help: "Print the manual page, repolock(1).", Command: manCmd{}, Tag: cli.NoConfig,
			Example: "repolock man | man -l -", Second: "repolock man >/usr/local/share/man/man1/repolock.1"},
		{Name: "version", Help: "Show the version.", Command: versionCmd{}, Tag: cli.NoConfig,
			Example: "repolock version", Second: "repolock --json version"},
		{Name: "help", Help: "Show the help of a command, or on a topic.", Command: helpCmd{}, Tag: cli.NoConfig,
			Example: "repolock help prune", Second: "repolock help urls"},
	}},
	{Title: "", Commands: []cli.Entry{
		{Name: unnamed, Command: programCmd{}, Tag: cli.Unnamed},
		{Name: "unlocked", Command: unlockedCmd{}, Tag: cli.Hidden},
		{Name: "complete", Command: completeCmd{}, Tag: cli.Hidden},
		{Name: "keeper", Command: keeperCmd{}, Tag: cli.Hidden},
		{Name: "torture-child", Command: tortureChildCmd{}, Tag: cli.Hidden},
	}},
}

// ofEnvironment is a paragraph in the help of run, backup and the other commands that run a program.
const ofEnvironment = `The command's environment has REPOLOCK_HELD=1, REPOLOCK_REPO if there is a repository, REPOLOCK_MODE, REPOLOCK_ID, and REPOLOCK_FENCE if there is one.`

// reader reads the command lines of repolock.
var reader = &cli.Reader{
	Groups: groups, Topics: topics, Summary: summary, Variables: helpVariables, Environment: manEnvironment,
	Version: func() string { return newBuild().String() }, Configured: func() cli.Configurable { return &programCmd{} }, Unnamed: unnamed,
}

// helpVariables are the variables of help texts. schemes is "s3:, minio:, b2: or file:".
func helpVariables() kong.Vars {
	directory, buckets := open.Schemes()[0].Name, ""
	for _, s := range open.Schemes()[1:] {
		buckets += ", " + s.Name + ":"
	}
	schemes := strings.TrimPrefix(buckets, ", ") + " or " + directory + ":"
	return kong.Vars{"schemes": schemes, "also": strings.Join(also.Examples(), ", ")}
}
