package main

import (
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/alecthomas/kong"

	"github.com/repolock/repolock/internal/fault"
)

// mistaken words what is wrong with a command line that was not parsed.
func mistaken(err error, args []string) error {
	if ours, ok := errors.AsType[*fault.Error](err); ok {
		return ours
	}
	parsing, ok := errors.AsType[*kong.ParseError](err)
	if !ok {
		return fault.As(fault.Usage, err)
	}
	if parsing.Context.Error != nil {
		return unexpected(parsing.Context, args)
	}
	node := parsing.Context.Selected()
	if node == nil {
		return fault.Advise(fault.New(fault.Usage, "no command is given"), swallowed(args))
	}
	for _, p := range node.Positional {
		switch {
		case !p.Required || p.Set:
		case p.Passthrough:
			return errNoCommand
		default:
			return fault.New(fault.Usage, "no %s is given", p.Name)
		}
	}
	return fault.As(fault.Usage, err) // two flags that exclude each other
}

var errNoCommand = fault.New(fault.Usage, "no command to run: write it after --")

// unexpected returns the error of a word that the parser has stopped at: a flag or an argument that doesn't
// exist. Values of flags have errors of their own.
func unexpected(ctx *kong.Context, args []string) error {
	short := func(word string) string { return fmt.Sprintf("-%c", []rune(word)[0]) }
	rest := ctx.Path[len(ctx.Path)-1].Remainder()
	at := len(args) - len(rest)
	if args[at] == "--" && len(rest) > 1 {
		at++
	}
	word, selected := args[at], ctx.Selected()
	switch after := slices.Contains(args[:at], "--"); {
	case word != rest[0] && !after: // a letter of -xyz
		return notAFlag(args, short(rest[0]), short(rest[0]))
	case strings.HasPrefix(word, "--") && !after:
		flag, _, _ := strings.Cut(word, "=")
		return notAFlag(args, flag, word)
	case strings.HasPrefix(word, "-") && word != "-" && !after:
		return notAFlag(args, short(word[1:]), word)
	case selected == nil && after:
		return noCommand(word, args[at+1:])
	case selected == nil:
		return notACommand(word, args[at+1:])
	}
	return fault.Advise(fault.New(fault.Usage, "unexpected argument %s", harmless(word)), notArgument(selected.Name, word, args))
}

// notACommand returns the error of a first word that is no command of repolock. Often it is the
// program that was to be run, or what another tool calls the same thing.
func notACommand(word string, rest []string) error {
	hint, ours, like := "see repolock help", elsewhere[word], alike(word)
	switch isBackup := slices.Contains(wrapped[:], filepath.Base(word)); {
	case isBackup || ours == "" && like == "" && runs(word):
		hint = underLock(word, rest)
	case ours != "":
		hint = "did you mean " + ours + "?"
	case namesRepository(word):
		hint = byFlag(word)
	case like != "":
		hint = "did you mean " + like + "?"
	}
	if slices.Contains(rest, "--") && !strings.HasPrefix(hint, nothingRun) {
		hint = nothingRun + "; " + hint
	}
	return fault.Advise(fault.New(fault.Usage, "%.80q isn't a command of repolock", harmless(word)), hint)
}

// alike returns the commands that a word can be a misspelling or the beginning of.
func alike(word string) string {
	var all []string
	for _, c := range commands {
		if word != "" && c.tag != hidden && (strings.HasPrefix(c.name, word) || distance(c.name, word) <= 2) {
			all = append(all, c.name)
		}
	}
	return strings.Join(all, ", ")
}

// notArgument returns where a word belongs that a command doesn't take, or "".
func notArgument(command, word string, args []string) string {
	switch {
	case command == "break-lock" && len(word) >= leastID && strings.Trim(word, "0123456789abcdef") == "":
		return "an id is named by a flag: --id " + word
	case command == "acquire" && slices.Contains(args, "--"):
		return "acquire runs no command: repolock run --shared -- COMMAND does, under a lock"
	case command != "doctor" && command != "torture" && namesRepository(word): // these two take one
		return byFlag(word)
	default:
		return ""
	}
}

// noCommand returns the error of a program after --, before which repolock finds no command of its own.
func noCommand(word string, rest []string) error {
	err := fault.New(fault.Usage, "no command of repolock comes before --")
	if word == "" {
		return err
	}
	return fault.Advise(err, underLock(word, rest))
}

// underLock says how a program is run under a lock.
func underLock(word string, rest []string) string {
	subcommand := ""
	if i := slices.IndexFunc(rest, func(w string) bool { return !strings.HasPrefix(w, "-") }); i >= 0 && slices.Contains(wrapped[:], filepath.Base(word)) {
		subcommand = rest[i]
	}
	operation := "backup"
	for of, subcommands := range operations {
		if slices.Contains(subcommands, subcommand) {
			operation = of
		}
	}
	hint := fmt.Sprintf(nothingRun+"; to run it under a lock: repolock %s -- %.80s", operation, strings.TrimSpace(word+" "+subcommand))
	if len(rest) > 1 || len(rest) > 0 && subcommand == "" {
		hint += " …" // which can have a password
	}
	return hint
}

// runs reports whether a word is a program on this machine.
func runs(word string) bool {
	_, err := exec.LookPath(word)
	return err == nil
}

// wrapped are programs that repolock is mostly wrapped around, installed here or not.
var wrapped = [...]string{"restic", "borg", "kopia", "rclone", "cloudstic", "rustic", "duplicacy", "rsync"}

// operations are commands of these programs by the command of repolock that they run under. All others
// run under backup.
var operations = map[string][]string{
	"restore": {"restore", "extract", "mount", "dump"},
	"prune":   {"prune", "forget", "compact", "delete", "gc", "maintenance", "rebuild-index", "repair", "recover"},
}

// elsewhere is what other tools' names for commands of repolock mean here.
var elsewhere = map[string]string{
	"unlock": "release (of a script's own lock) or break-lock (of any holder's)",
	"break":  "break-lock", "rm": "break-lock", "delete": "break-lock", "remove": "break-lock",
	"lock": "run, or acquire in a script", "exec": "run", "shared": "run --shared", "exclusive": "run --exclusive",
	"list": "status", "ls": "status", "locks": "status", "list-locks": "status", "show": "status", "who": "status", "info": "status",
	"watch": "status --watch", "top": "status --watch",
	"forget": "prune", "gc": "prune", "compact": "prune", "cleanup": "prune",
	"test": "doctor", "check-store": "doctor", "init": "doctor",
	"log": "history", "logs": "history", "audit": "history",
	"config": "repos", "refresh": "renew", "keepalive": "renew",
}

// distance is the number of letters to insert, delete or replace that makes b of a (Levenshtein).
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		before := row[0]
		row[0]++
		for j := range len(b) {
			d := before
			if a[i] != b[j] {
				d = min(before, row[j], row[j+1]) + 1
			}
			before, row[j+1] = row[j+1], d
		}
	}
	return row[len(b)]
}

// notAFlag returns the error of a flag that the called command doesn't have. It can be a letter of a word
// such as -wait.
func notAFlag(args []string, flag, word string) error {
	command := "backup" // which has the flags that most have
	if c, ok := called(args); ok {
		command = c.name
	}
	meant := ""
	switch {
	case strings.HasPrefix(flag, "--"):
		meant = similar(command, flag)
	case len(word) > len("-x"):
		meant = similar(command, "-"+word)
	}
	if meant == "" {
		return fault.New(fault.Usage, "unknown flag %.80s", flag) // not the name of a command
	}
	return fault.New(fault.Usage, "unknown flag %.80s: did you mean %s?", flag, meant)
}

// similar returns the flag of a command that a word was probably meant for, or "". It is none that has
// little in common with the word, or is its opposite.
func similar(command, word string) string {
	word, _, _ = strings.Cut(word, "=")
	name := strings.TrimPrefix(word, "--")
	if ours := flagsElsewhere[name]; ours != "" {
		return ours
	}
	best, at := "", 3
	app := model()
	for _, f := range visible(append(slices.Clone(nodeOf(app, command).Flags), app.Flags...)) {
		switch d := distance(name, f.Name); {
		case strings.HasPrefix(name, "no") && !strings.HasPrefix(f.Name, "no"):
		case name != "" && strings.HasPrefix(f.Name, name):
			return "--" + f.Name
		case d < at && 2*d <= len(name):
			best, at = "--"+f.Name, d
		}
	}
	return best
}

// flagsElsewhere is what flags of other tools are called here.
var flagsElsewhere = map[string]string{
	"retry-lock": "--wait", "lock-wait": "--wait", "lock-timeout": "--wait", "timeout": "--wait", // restic, borg, others
	"repository": "--repo", "repo-url": "--repo",
	"conflict-exit-code": "--held-exit-code", // flock
}

// swallowed returns the hint for a command line without a command, one of whose flags has taken the
// command's name as its value, or "".
func swallowed(args []string) string {
	for i, word := range args {
		if _, ok := called(args[i : i+1]); ok && i > 0 && strings.HasPrefix(args[i-1], "-") && !slices.Contains(args[:i], "--") {
			return fmt.Sprintf("%s took %q as its value", args[i-1], word)
		}
	}
	return ""
}
