package programs

import (
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
	if words := strings.Fields(word); len(words) > 1 && Find(base(words[0])) != nil {
		name, hint = base(words[0])+" …", "the quotes make one word of the whole command: leave them out"
	}
	if hint == "" {
		hint = eitherWords(text.Word(name))
	}
	return fault.Advise(fault.New(fault.Usage, "%.80q isn't a program whose commands repolock knows", name), hint)
}
