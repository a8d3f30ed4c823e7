package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/repolock/repolock/internal/lazyregexp"
)

var unknown = lazyregexp.New(`^unknown flag (--?[\w-]+)(?:,.*)?$`)

// notAFlag returns the error of a flag that the command doesn't have, or nil if kong says something
// else.
func notAFlag(err error, args []string) error {
	wrong := unknown.FindStringSubmatch(err.Error())
	if wrong == nil {
		return nil
	}
	command, flag, word := "backup", wrong[1], wrong[1] // of no command: backup has the flags that most have
	if field, ok := called(args); ok {
		command = commandName(field)
	}
	if i := slices.IndexFunc(args, func(arg string) bool { return strings.HasPrefix(arg, flag) }); i >= 0 {
		word = args[i]
	}
	return unknownFlag(command, flag, word)
}

// unknownFlag returns the error of a flag that a command doesn't have. It can be a letter of a word
// such as -wait.
func unknownFlag(command, flag, word string) error {
	meant := ""
	switch {
	case strings.HasPrefix(flag, "--"):
		meant = similar(command, flag)
	case len(word) > len("-x"):
		meant = similar(command, "-"+word)
	}
	if meant == "" {
		return fmt.Errorf("unknown flag %.80s", flag) // not the name of a command
	}
	return fmt.Errorf("unknown flag %.80s: did you mean %s?", flag, meant)
}

// similar returns the flag of a command that a word was probably meant for, or "". It is none that has
// little in common with the word, or is its opposite.
func similar(command, word string) string {
	word, _, _ = strings.Cut(word, "=")
	name := strings.TrimPrefix(word, "--")
	if ours := elsewhereFlag(name); ours != "" {
		return "--" + ours
	}
	best, at := "", 3
	app := newParser(&cli{}).Model
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

// elsewhereFlag returns what flags of other tools are called here, or "".
func elsewhereFlag(name string) string {
	switch name {
	case "retry-lock", "lock-wait", "lock-timeout", "timeout": // restic, borg, others
		return "wait"
	case "repository", "repo-url":
		return "repo"
	case "conflict-exit-code": // flock
		return "held-exit-code"
	default:
		return ""
	}
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
