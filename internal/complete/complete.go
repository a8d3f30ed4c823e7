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
func Words(app *kong.Application, words []string, values Values) []string {
	at := line{node: app.Node}
	last := len(words) - 1
	for _, word := range words[:last] {
		at.take(word)
	}
	typed := words[last]
	var found []string
	if name, value, ok := strings.Cut(typed, "="); ok && at.wantsFlag(name) {
		typed, found = value, values.of(at.flag(name))
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
	args    int         // how many arguments of the command there are
	ended   bool        // the remaining words belong to another program
}

// take reads a word that is complete.
func (l *line) take(word string) {
	switch {
	case l.pending != nil:
		l.pending = nil
	case l.ended:
	case word == "--":
		l.ended = true
	case l.wantsFlag(word):
		if flag := l.flag(word); flag != nil && !flag.IsBool() && !strings.Contains(word, "=") {
			l.pending = flag
		}
	case len(word) > 1 && word[0] == '-':
		l.pending = l.short(word[1:])
	default:
		l.argument(word)
	}
}

// wantsFlag reports whether a word is a long flag here.
func (l *line) wantsFlag(word string) bool {
	return l.pending == nil && !l.ended && strings.HasPrefix(word, "--")
}

// argument reads a command's name or an argument.
func (l *line) argument(word string) {
	for _, child := range visible(l.node) {
		if child.Name == word {
			l.node, l.args = child, 0
			return
		}
	}
	if positional := l.positional(); positional != nil && positional.Passthrough {
		l.ended = true
	}
	l.args++
}

// positional returns the argument that comes next, or nil.
func (l *line) positional() *kong.Value {
	if l.args < len(l.node.Positional) {
		return l.node.Positional[l.args]
	}
	return nil
}

// short reads short flags in one word, and returns the flag whose value comes next.
func (l *line) short(flags string) *kong.Value {
	for i, name := range flags {
		for _, f := range l.flags() {
			if f.Short == name && !f.IsBool() {
				if i+len(string(name)) < len(flags) {
					return nil // the remainder of the word is the value
				}
				return f.Value
			}
		}
	}
	return nil
}

// flag returns the flag that --NAME or --NAME=VALUE means, or nil.
func (l *line) flag(word string) *kong.Value {
	name, _, _ := strings.Cut(strings.TrimPrefix(word, "--"), "=")
	for _, f := range l.flags() {
		if f.Name == name {
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
	for _, child := range visible(l.node) {
		found = append(found, described(child.Name, child.Help, child.Tag))
	}
	return append(found, values.of(l.positional())...)
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

// visible returns a node's commands, without the hidden ones.
func visible(node *kong.Node) []*kong.Node {
	return slices.DeleteFunc(slices.Clone(node.Children), func(child *kong.Node) bool { return child.Hidden })
}
