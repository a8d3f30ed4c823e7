package programs

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/repolock/repolock/internal/fault"
	"github.com/repolock/repolock/internal/text"
)

// Misplaced returns a hint if a word in a program's place is a flag, or "".
func Misplaced(word string) string {
	if strings.HasPrefix(word, "-") {
		return "flags of repolock come before --, and the command after it"
	}
	return OtherDash(word)
}

// OtherDash returns a hint if a word begins with another dash than a hyphen, or "".
func OtherDash(word string) string {
	const dashes = "‐‑‒–—―−"
	if strings.IndexAny(word, dashes) != 0 {
		return ""
	}
	flag, _, _ := strings.Cut(strings.TrimLeft(word, dashes+"-"), "=") // without its value, which can be a password
	hyphens := "--"
	if utf8.RuneCountInString(flag) == 1 {
		hyphens = "-"
	}
	return "its dash isn't a hyphen; a word processor may have replaced it: write " + text.Brief(hyphens+flag)
}

// unknownProgram returns the error of a program that isn't in the table.
func unknownProgram(word string) error {
	if why, ok := shells[base(word)]; ok {
		return fault.Advise(fault.New(fault.Usage, "%s: %s", text.Brief(base(word)), why), eitherWords(base(word)))
	}
	name, hint := base(word), Misplaced(word)
	if OtherDash(word) != "" {
		hint += ", before the first --"
	}
	if near := Near(word); hint == "" && near != "" {
		hint = "did you mean " + near + "?"
	}
	if words := strings.Fields(word); len(words) > 1 && Find(base(words[0])) != nil {
		name, hint = base(words[0])+" …", "the quotes make one word of the whole command: leave them out"
	}
	if hint == "" {
		hint = eitherWords(text.Word(name))
	}
	return unlisted(name, hint)
}

// unlisted returns the error of a name that no program of the table has, with a hint.
func unlisted(name, hint string) error {
	return fault.Advise(fault.New(fault.Usage, "%.80q isn't a program whose commands repolock knows", name), hint)
}

// Near returns the programs that a word of three letters or more resembles, or "".
func Near(word string) string {
	var names []string
	name := base(word)
	for _, p := range All {
		if len(name) > 2 && text.Resembles(name, p.Name) {
			names = append(names, p.Name)
		}
	}
	return strings.Join(names, ", ")
}

// unknownCommand returns the error of a command that isn't in the program's table.
func (l *Line) unknownCommand() error {
	w := l.words
	switch {
	case w.unknown != "":
		return fault.Advise(fault.New(fault.Usage, "repolock doesn't know the flag %.80s of %s, or the flag lacks its value, so it can't find the command", w.unknown, l.Program.Name), l.inWords())
	case len(w.positional) == 0:
		return fault.Advise(fault.New(fault.Usage, "the line has no command of %s", l.Program.Name), "repolock help programs lists the commands")
	}
	name := w.positional[0]
	group := cmp.Or(l.Program.alias[name], name) + " "
	if len(w.positional) > 1 && slices.ContainsFunc(l.Program.Commands, func(c Command) bool { return strings.HasPrefix(c.Words, group) }) {
		name += " " + w.positional[1]
	}
	hint := l.inWords()
	if near := l.Program.near(w.positional); len(near) > 4 {
		hint = "repolock help programs lists the commands"
	} else if len(near) > 0 {
		hint = "did you mean " + strings.Join(near, ", ") + "?"
	}
	return fault.Advise(fault.New(fault.Usage, "%.80q isn't a command of %s that repolock knows", name, l.Program.Name), cmp.Or(OtherDash(name), hint))
}

// near returns the commands that the first words resemble.
func (p *Program) near(words []string) (names []string) {
	words = append([]string{cmp.Or(p.alias[words[0]], words[0])}, words[1:]...)
	for _, c := range p.Commands {
		n := min(len(words), len(strings.Fields(c.Words)))
		if text.Resembles(strings.Join(words[:n], " "), c.Words) {
			names = append(names, c.Words)
		}
	}
	return names
}

// Alone returns a hint if a program follows a command of repolock, such as status, in another way than -- PROGRAM, or "".
func Alone(command string, words []string) string {
	for _, word := range words {
		if p := Find(base(word)); p != nil {
			return fmt.Sprintf("write the program's name alone after --: {repolock %s} -- %s", command, p.Name)
		}
	}
	if near := Near(words[0]); near != "" && !strings.Contains(near, ",") {
		return fmt.Sprintf("did you mean {repolock %s} -- %s?", command, near)
	}
	return ""
}

// UnknownAlone returns the error of words that follow a command of repolock, such as status, and --. They begin with no
// program of the table.
func UnknownAlone(command string, words []string) error {
	var names []string
	for _, p := range All {
		names = append(names, p.Name)
	}
	hint := cmp.Or(Misplaced(words[0]), Alone(command, words),
		fmt.Sprintf("repolock knows %s: {repolock %s} -- %s", strings.Join(names, ", "), command, restic.Name))
	return unlisted(base(words[0]), hint)
}

// Instead returns the hint for a command of repolock that lacks a repository, if a program's own repository has the lock,
// or "". words is the line that the command runs, or nil.
func Instead(command string, words, env []string, s System) string {
	if line, err := Read(words, env); err == nil {
		if _, err := line.Place(s); err != nil {
			return ""
		}
		return fmt.Sprintf("write {repolock -- %s …}: it finds the repository of %s", line.title(), line.Program.Name)
	}
	switch p, variable := Named(env); {
	case p == nil:
		return ""
	case slices.Contains([]string{"status", "break-lock", "doctor"}, command):
		return fmt.Sprintf("write {repolock %s} -- %s: it finds the repository in %s", command, p.Name, variable)
	case p != restic:
		return ""
	default:
		line, err := Read([]string{p.Name, "backup"}, env)
		if err != nil {
			return ""
		}
		place, err := line.Place(s)
		if err != nil || strings.Contains(place.URL, "command=") { // it can be secret
			return ""
		}
		return fmt.Sprintf("for the repository in %s give --repo %s", variable, text.Word(place.URL))
	}
}

// OwnDryRun returns a hint on the dry run of a program's command itself, or "" if the table doesn't know the line.
func OwnDryRun(words, env []string) string {
	line, err := Read(words, env)
	if err != nil {
		return ""
	}
	for _, r := range line.Command.Rules {
		if r.Flag == "dry-run" && r.Mode == None && r.Refused == "" && !r.Alone {
			return "its own dry run needs no lock: repolock -- " + line.title() + " --dry-run …"
		}
	}
	return "a dry run of its own gets the lock that it needs: repolock -- " + line.title() + " …"
}
