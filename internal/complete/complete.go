// Package complete completes the command line of a program that kong parses.
package complete

import (
	"slices"
	"strings"

	"github.com/alecthomas/kong"
)

// Values returns the candidates for a flag or an argument with the tag predictor:"KIND".
// A candidate that begins with a colon is an order to the shell, and is always passed on.
type Values func(kind string) []string

// Words returns the candidates for the last of words, sorted. Words doesn't contain the
// program's name, and isn't empty. For --flag=value the candidates are the value's. After a
// candidate for a flag or a command there is a tab and what it is for.
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

// of returns the candidates for a value. A nil flag is one that doesn't exist.
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

// line is a command line up to the word that is being typed.
type line struct {
	node    *kong.Node  // the command, or the program before there is one
	pending *kong.Value // the flag whose value comes next
	next    *kong.Value // the argument that comes next, or nil
	ended   bool        // the remaining words belong to another program
}

// trace reads words as kong does. It skips a word that kong refuses.
func trace(parser *kong.Kong, words []string) line {
	ctx, _ := kong.Trace(parser, words)
	l := line{node: ctx.Model.Node, ended: slices.Contains(words, "--")}
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
	if rest[0] != word { // letters of -xyz
		word = "-" + rest[0]
	}
	if flag := l.flag(word); flag != nil && !flag.IsBool() && !strings.Contains(word, "=") {
		if l.pending = flag; len(rest) == 1 {
			return l
		}
		refused = 2 // with its value
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

// flags returns the flags that are known here, without the hidden ones.
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

// described appends to a word what it is for: its tag brief, or else the first sentence of its help.
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
