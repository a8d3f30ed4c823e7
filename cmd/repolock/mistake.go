package main

import (
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/repolock/repolock/internal/fault"
	"github.com/repolock/repolock/internal/lazyregexp"
)

// mistaken returns what kong says of a command line in words of our own.
func mistaken(err error, args []string) error {
	if flag := notAFlag(err, args); flag != nil {
		return fault.As(fault.Usage, flag)
	}
	if hint := swallowed(args); hint != "" && strings.HasPrefix(err.Error(), "expected one of ") {
		return fault.Advise(fault.As(fault.Usage, corrected(err)), hint)
	}
	if wrong := notCommand.FindStringSubmatch(err.Error()); wrong != nil {
		if at := slices.Index(args, wrong[1]); at >= 0 {
			if _, ok := called(args[:at+1]); !ok {
				if slices.Contains(args[:at], "--") {
					return noCommand(wrong[1], args[at+1:])
				}
				return notACommand(wrong[1], args[at+1:], wrong[2])
			}
		}
		if hint := notArgument(wrong[1], args); hint != "" {
			return fault.Advise(fault.New(fault.Usage, "unexpected argument %s", harmless(wrong[1])), hint)
		}
	}
	return fault.As(fault.Usage, corrected(err))
}

// corrected returns what kong says of flags and arguments in words of our own.
func corrected(err error) error {
	for _, m := range corrections {
		if kong := lazyregexp.New(m.kong); kong.MatchString(err.Error()) {
			return errors.New(kong.ReplaceAllString(err.Error(), m.ours))
		}
	}
	if wrong := notOneOf.FindStringSubmatch(err.Error()); wrong != nil {
		choices := strings.Split(strings.ReplaceAll(wrong[2], `"`, ""), ",")
		return fmt.Errorf("%s%s: must be one of %s", wrong[1], wrong[3], strings.Join(choices, ", "))
	}
	return err
}

var notOneOf = lazyregexp.New(`(?s)^(?:(--[\w-]+ )|<\w+> )must be one of (?:"",)?(.*) but got "(.*)"$`)

var notCommand = lazyregexp.New(`(?s)^unexpected argument (.*?)(?:, did you mean (?:one of )?(.*)\?)?$`)

// corrections replace messages of kong. The first that fits counts. (They are strings, so that they
// take no time before main.)
var corrections = [...]struct{ kong, ours string }{
	{`^expected one of .*`, "no command is given"},
	{`^expected "<command> \.\.\."$`, "no command to run: write it after --"},
	{`^expected "<(\w+)>"$`, "no $1 is given"},
	{`(?s)^(unknown flag .*), did you mean .*$`, "$1"},
	{`^(--[\w-]+): expected .* but got "EOL".*`, "$1: its value is missing"},
	{`^(--[\w-]+): missing value, expecting .*`, "$1: its value is missing"},
	{`^(--(?:wait|ttl|look|settle|resume-for|duration|lease|interval|since|until|clients|rounds|seed|for-pid|held-exit-code)): expected .* but got "(-\d.*)" \(\w+ flag\).*`, "$1 $2: must not be negative"},
	{`^(--[\w-]+): expected .* but got "(.*)" \(\w+ flag\).*`, `$1: its value is missing before $2`},
	{`(?s)^(--[\w-]+)(?:: "": must be | must be one of .* but got ""$|: expected .* but got "").*`, "$1: its value is empty"},
	{`^(--[\w-]+): expected duration but got "([\d.]+)".*`, "$1 $2: has no unit: write ${2}s for seconds, ${2}m for minutes"},
	{`(?s)^(--[\w-]+): expected duration but got "(.*)": .*`, "$1 $2: must be a time such as 90s, 15m or 2h"},
	{`^(--[\w-]+): "([\d.]+)": must be a time such .*`, "$1 $2: has no unit: write ${2}s for seconds, ${2}m for minutes"},
	{`(?s)^(--[\w-]+): "(.*)": must be `, "$1 $2: must be "},
	{`^(--[\w-]+): (-\S+): must `, "$1 $2: must "},
	{`(?s)^(--[\w-]+): expected a valid 64 bit u?int but got "(.*)"$`, "$1 $2: must be a whole number"},
	{`(?s)^(--[\w-]+): expected "<key>=<value>" but got "(.*)"$`, "$1 $2: must be KEY=VALUE"},
	{`(?s)^(--[\w-]+): bool value must be .* but got "(.*)"$`, "$1 $2: takes no value"},
}

// notACommand returns the error of a first word that is no command of repolock. Often it is the
// program that was to be run, or what another tool calls the same thing.
func notACommand(word string, rest []string, similar string) error {
	hint, ours := "see repolock help", elsewhere(word)
	switch isBackup := slices.Contains(wrapped[:], filepath.Base(word)); {
	case isBackup || ours == "" && similar == "" && runs(word):
		hint = underLock(word, rest)
	case ours != "":
		hint = "did you mean " + ours + "?"
	case namesRepository(word):
		hint = byFlag(word)
	case similar != "" && word != "":
		hint = "did you mean " + strings.ReplaceAll(similar, `"`, "") + "?"
	}
	if slices.Contains(rest, "--") && !strings.HasPrefix(hint, nothingRun) {
		hint = nothingRun + "; " + hint
	}
	return fault.Advise(fault.New(fault.Usage, "%.80q isn't a command of repolock", harmless(word)), hint)
}

// notArgument returns where a word belongs that a command doesn't take, or "".
func notArgument(word string, args []string) string {
	field, _ := called(args)
	command := commandName(field)
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
	if slices.Contains(wrapped[:], filepath.Base(word)) {
		subcommand = first(rest)
	}
	hint := fmt.Sprintf(nothingRun+"; to run it under a lock: repolock %s -- %.80s", operation(subcommand), strings.TrimSpace(word+" "+subcommand))
	if len(rest) > 1 || len(rest) > 0 && subcommand == "" {
		hint += " …" // which can have a password
	}
	return hint
}

// wrapped are programs that repolock is mostly wrapped around, installed here or not.
var wrapped = [...]string{"restic", "borg", "kopia", "rclone", "cloudstic", "rustic", "duplicacy", "rsync"}

// runs reports whether a word is a program on this machine.
func runs(word string) bool {
	_, err := exec.LookPath(word)
	return err == nil
}

// operation returns the command of repolock for a command of a program.
func operation(subcommand string) string {
	switch subcommand {
	case "restore", "extract", "mount", "dump":
		return "restore"
	case "prune", "forget", "compact", "delete", "gc", "maintenance", "rebuild-index", "repair", "recover":
		return "prune"
	default:
		return "backup"
	}
}

// elsewhere returns what other tools' names for commands of repolock mean here, or "".
func elsewhere(word string) string {
	switch word {
	case "unlock":
		return "release (of a script's own lock) or break-lock (of any holder's)"
	case "break", "rm", "delete", "remove":
		return "break-lock"
	case "lock":
		return "run, or acquire in a script"
	case "exec":
		return "run"
	case "shared", "exclusive":
		return "run --" + word
	case "list", "ls", "locks", "list-locks", "show", "who", "info":
		return "status"
	case "watch", "top":
		return "status --watch"
	case "forget", "gc", "compact", "cleanup":
		return "prune"
	case "test", "check-store", "init":
		return "doctor"
	case "log", "logs", "audit":
		return "history"
	case "config":
		return "repos"
	case "refresh", "keepalive":
		return "renew"
	default:
		return ""
	}
}

// first returns the first word that is no flag.
func first(words []string) string {
	for _, w := range words {
		if !strings.HasPrefix(w, "-") {
			return w
		}
	}
	return ""
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
