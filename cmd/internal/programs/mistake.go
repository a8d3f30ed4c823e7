package programs

import (
	"strings"

	"github.com/repolock/repolock/internal/fault"
	"github.com/repolock/repolock/internal/text"
)

// Misplaced returns a hint if a word in a program's place is a flag, or "".
func Misplaced(word string) string {
	if strings.HasPrefix(word, "-") {
		return "flags of repolock come before --, and the command after it"
	}
	return ""
}

// unknownProgram returns the error of a program that isn't in the table.
func unknownProgram(word string) error {
	if why, ok := shells[base(word)]; ok {
		return fault.Advise(fault.New(fault.Usage, "%s: %s", text.Brief(base(word)), why), eitherWords(base(word)))
	}
	name, hint := base(word), Misplaced(word)
	if words := strings.Fields(word); len(words) > 1 && Find(base(words[0])) != nil {
		name, hint = base(words[0])+" …", "the quotes make one word of the whole command: leave them out"
	}
	if hint == "" {
		hint = eitherWords(text.Word(name))
	}
	return fault.Advise(fault.New(fault.Usage, "%.80q isn't a program whose commands repolock knows", name), hint)
}
