package main

import (
	"iter"
	"slices"
)

// command is a command of the command line. run returns the exit code, or an error that
// describe has an exit code for.
type command interface {
	run(*reporter, global) (int, error)
}

// entry is a command in the table of all commands.
type entry struct {
	name, help string
	command    command
	tag        string
	// example and second are command lines for its help.
	example, second string
}

// Tags of commands.
const (
	noconfig = `noconfig:""` // reads no configuration file
	hidden   = `hidden:"" ` + noconfig
)

// groups are all commands, in the order of the overview. The last group has no help.
var groups = [...]struct {
	title    string
	commands []entry
}{
	{"Run a program under a lock", []entry{
		{"backup", "Run a backup under a shared lock.", backupCmd{}, "",
			"repolock -r s3://bucket/prefix backup -- restic backup /home",
			"repolock -r prod backup --if-held skip -- borg create ::'{now}' /home"},
		{"restore", "Run a restore under a shared lock.", restoreCmd{}, "",
			"repolock -r prod restore -- restic restore latest --target /tmp/back",
			"repolock -r /mnt/repo restore --wait 15m -- rclone copy b2:bucket /srv"},
		{"prune", "Run a prune under the exclusive lock.", pruneCmd{}, "",
			"repolock -r prod prune --wait 1h -- restic prune", "repolock -r prod prune --dry-run -- restic prune"},
		{"run", "Run any other command under a lock, or without one.", runCmd{}, "",
			"repolock -r prod run --exclusive --operation check -- restic check", "repolock run --no-lock -- restic snapshots"},
	}},
	{"Hold a lock in a script", []entry{
		{"acquire", "Acquire a lock for a script, and hold it in the background.", acquireCmd{}, "",
			`TOKEN=$(repolock -r prod acquire --shared --for-pid $$) || exit`,
			`LOCK=$(repolock acquire --shared --export --for-pid $$) && eval "$LOCK"`},
		{"check", "Exit with 0 if the lock of acquire is held now.", checkCmd{}, noconfig,
			`repolock check "$token" || exit`, `REPOLOCK_TOKEN=$token repolock check`},
		{"renew", "Refresh the lock of acquire now.", renewCmd{}, noconfig,
			`repolock renew "$token" && restic prune`, `REPOLOCK_TOKEN=$token repolock renew`},
		{"release", "Release the lock of acquire.", releaseCmd{}, noconfig,
			`repolock release "$token"`, `REPOLOCK_TOKEN=$token repolock release`},
	}},
	{"Look at locks, and break them", []entry{
		{"status", "Show every lock in the repository. Never writes.", statusCmd{}, "",
			"repolock -r prod status --watch", "repolock -r prod --json status"},
		{"history", "Show from an audit log who held which lock, and when.", historyCmd{}, noconfig,
			"repolock history /var/log/repolock.jsonl", "zcat log.gz | repolock history --svg night.svg -"},
		{"break-lock", "Delete locks of any holder. For emergencies.", breakCmd{}, "",
			"repolock -r prod break-lock --dead", "repolock -r prod break-lock --id ID --yes"},
	}},
	{"Try out a store", []entry{
		{"doctor", "Try out whether a store is fit for locks.", doctorCmd{}, "",
			"repolock doctor s3://bucket/prefix", "repolock -r prod --json doctor"},
		{"torture", "Let processes contend for a lock, and see whether it holds.", tortureCmd{}, "",
			"repolock torture /mnt/repo --duration 10m", `repolock torture --with 'flock /tmp/lock {}' --lease 1s`},
	}},
	{"More", []entry{
		{"repos", "Show the repositories of the configuration file.", reposCmd{}, "",
			"repolock repos", "repolock --config /etc/repolock/config.toml repos"},
		{"completion", "Print a script that completes command lines in a shell.", completionCmd{}, noconfig,
			"source <(repolock completion bash)", "repolock completion fish | source"},
		{"man", "Print the manual page, repolock(1).", manCmd{}, noconfig,
			"repolock man | man -l -", "repolock man >/usr/local/share/man/man1/repolock.1"},
		{"version", "Show the version.", versionCmd{}, noconfig,
			"repolock version", "repolock --json version"},
		{"help", "Show the help of a command, or on a topic.", helpCmd{}, noconfig,
			"repolock help prune", "repolock help urls"},
	}},
	{"", []entry{
		{name: "complete", command: completeCmd{}, tag: hidden},
		{name: "keeper", command: keeperCmd{}, tag: hidden},
		{name: "torture-child", command: tortureChildCmd{}, tag: hidden},
		{name: "torture-witness", command: tortureWitnessCmd{}, tag: hidden},
	}},
}

func commands() iter.Seq[entry] {
	return func(yield func(entry) bool) {
		for _, g := range groups {
			for _, c := range g.commands {
				if !yield(c) {
					return
				}
			}
		}
	}
}

// called returns the command that the arguments might call: the first word that is the name of one.
func called(args []string) (found entry, ok bool) {
	if end := slices.Index(args, "--"); end >= 0 {
		args = args[:end]
	}
	at := len(args)
	for c := range commands() {
		if i := slices.Index(args[:at], c.name); i >= 0 {
			found, ok, at = c, true, i
		}
	}
	return found, ok
}
