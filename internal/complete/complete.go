// Package complete completes the command line of a program that kong parses.
package complete

import (
	"slices"
	"strings"

	"github.com/alecthomas/kong"
)

// Values returns the candidates for a flag or an argument with the tag predictor:"KIND". A candidate that begins with a
// colon is an instruction for the shell, so Words never drops it.
type Values func(kind string) []string

// Words returns the sorted candidates for the last of words. words isn't empty, and doesn't contain the program's
// name. For --flag=value, Words returns candidates for the value. A flag or a command is followed by a tab and its
// description.
func Words(parser *kong.Kong, words []string, values Values) []string {
	last := len(words) - 1
	at, typed := trace(parser, words[:last]), words[last]
	var found []string
	if _, value, ok := strings.Cut(typed, "="); ok && at.pending == nil && !at.ended && strings.HasPrefix(typed, "--") {
		found, typed = values.of(at.flag(typed)), value
	} else {
		found = at.candidates(typed, values)
	}
	found = slices.DeleteFunc(found, func(word string) bool {
		return word == "" || word[0] != ':' && !strings.HasPrefix(word, typed)
	})
	slices.Sort(found)
	return slices.Compact(found)
}

// of returns the candidates for a value. value is nil if the flag doesn't exist.
func (v Values) of(value *kong.Value) []string {
	switch {
	case value == nil || value.Enum == "" && !value.Tag.Has("predictor"):
		return nil
	case value.Tag.Has("predictor"):
		return v(value.Tag.Get("predictor"))
	default:
		return value.EnumSlice()
	}
}

// line is the state of a command line before the word that is being typed.
type line struct {
	node    *kong.Node  // the command, or the program if no command is given yet
	pending *kong.Value // the flag whose value comes next
	next    *kong.Value // the argument that comes next, or nil
	ended   bool        // the remaining words belong to another program
}

// most is the number of words up to which a line is completed. The time of a trace grows with their square.
const most = 256

// trace parses words as kong does, but skips the words that kong refuses.
func trace(parser *kong.Kong, words []string) line {
	if slices.Contains(words, "--") || len(words) > most {
		return line{node: parser.Model.Node, ended: true}
	}
	ctx, _ := kong.Trace(parser, words)
	l := line{node: ctx.Model.Node}
	args := 0
	for _, element := range ctx.Path {
		if element.Command != nil && !element.Command.Hidden {
			l.node = element.Command
		}
		if element.Positional != nil {
			args++
			l.ended = l.ended || element.Positional.Passthrough
		}
	}
	if args < len(l.node.Positional) {
		l.next = l.node.Positional[args]
	}
	if ctx.Error == nil || l.ended {
		return l
	}
	rest := ctx.Path[len(ctx.Path)-1].Remainder()
	at, refused := len(words)-len(rest), 1
	word := words[at]
	if rest[0] != word { // word has several letters, as -xyz
		word = "-" + rest[0]
	}
	if flag := l.flag(word); flag != nil && !flag.IsBool() && !strings.Contains(word, "=") {
		if l.pending = flag; len(rest) == 1 {
			return l
		}
		refused = 2 // skip the flag and its value
	}
	return trace(parser, slices.Concat(words[:at], words[at+refused:]))
}

// flag returns the flag that --NAME, --NAME=VALUE or -x means, or nil.
func (l *line) flag(word string) *kong.Value {
	name, _, _ := strings.Cut(word, "=")
	for _, f := range l.flags() {
		if "--"+f.Name == name || "-"+string(f.Short) == word {
			return f.Value
		}
	}
	return nil
}

// flags returns the flags of the command and of the program, except for hidden ones.
func (l *line) flags() []*kong.Flag { return slices.Concat(l.node.AllFlags(true)...) }

func (l *line) candidates(typed string, values Values) (found []string) {
	switch {
	case l.pending != nil:
		return values.of(l.pending)
	case l.ended:
		return nil
	case strings.HasPrefix(typed, "-"):
		for _, f := range l.flags() {
			found = append(found, described("--"+f.Name, f.Value.Help, f.Tag))
			if f.Short != 0 {
				found = append(found, described("-"+string(f.Short), f.Value.Help, f.Tag))
			}
		}
		return found
	}
	for _, child := range l.node.Children {
		if !child.Hidden {
			found = append(found, described(child.Name, child.Help, child.Tag))
		}
	}
	return append(found, values.of(l.next)...)
}

// described appends a tab and a description to a word. The description is the tag brief, or else the help up to the
// first full stop, colon or semicolon.
func described(word, help string, tag *kong.Tag) string {
	if tag != nil && tag.Get("brief") != "" {
		help = tag.Get("brief")
	}
	for _, end := range []string{". ", ": ", "; "} {
		help, _, _ = strings.Cut(help, end)
	}
	if help = strings.TrimSuffix(help, "."); help == "" {
		return word
	}
	return word + "\t" + help
}
