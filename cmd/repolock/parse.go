package main

import (
	"cmp"
	"io"
	"reflect"
	"slices"
	"strings"
	"unicode"

	"github.com/alecthomas/kong"

	"github.com/repolock/repolock/internal/fault"
)

// parsed is a command line.
type parsed struct {
	cli      cli
	file     settings
	selected *kong.Node // the command
	helped   bool       // help was asked for, and printed
}

// parse reads a command line. It returns a value even with an error.
//
// Most of the time that it takes is for the description of commands that aren't called. So it
// first tries a parser for one command alone. A command line that this accepts means the same to
// the whole parser, which has no arguments before the command. If it accepts nothing, or prints
// help, the whole parser decides.
func parse(args []string, stdout, stderr io.Writer) (*parsed, error) {
	if p := parseNarrowly(args); p != nil {
		return p, nil
	}
	p := &parsed{}
	return p, p.parse(args, func(options ...kong.Option) *kong.Kong {
		return newParser(&p.cli, append(options, kong.Writers(stdout, stderr))...)
	})
}

// parseNarrowly returns nil if the whole parser must decide.
func parseNarrowly(args []string) *parsed {
	p := &parsed{}
	field, ok := called(args)
	if !ok {
		return nil
	}
	err := p.parse(args, func(options ...kong.Option) *kong.Kong { return newNarrowParser(&p.cli, field, options...) })
	if err != nil || p.helped {
		return nil
	}
	return p
}

// newNarrowParser returns a parser that knows the command of one field alone.
func newNarrowParser(c *cli, field reflect.StructField, options ...kong.Option) *kong.Kong {
	target := reflect.ValueOf(c).Elem().FieldByIndex(field.Index).Addr().Interface()
	command := kong.DynamicCommand(commandName(field), field.Tag.Get("help"), "", target, string(field.Tag))
	return complement(kong.Must(&c.global, append(options, noVars(), command, kong.Writers(io.Discard, io.Discard))...))
}

func (p *parsed) parse(args []string, newParser func(...kong.Option) *kong.Kong) error {
	parser := newParser(kong.Exit(func(int) { p.helped = true }), kong.Resolvers(&p.file))
	k, err := parser.Parse(args)
	if err == nil && !p.helped {
		p.selected = k.Selected()
		err = cmp.Or(emptied(k), repeated(k))
	}
	return err
}

// emptied returns an error for a flag whose value on the command line is empty, unless it has the tag
// emptiable: --id "$ID" with an unset variable must not mean all locks, nor --audit "$LOG" no log.
func emptied(k *kong.Context) error {
	for _, element := range k.Path {
		f := element.Flag
		switch {
		case f == nil || element.Resolved || f.Tag.Has("emptiable"):
		case blank(f.Target):
			return fault.New(fault.Usage, "--%s: its value is empty", f.Name)
		case f.Target.Kind() == reflect.Map && f.Target.MapIndex(reflect.ValueOf("")).IsValid():
			return fault.New(fault.Usage, "--%s: a key is empty", f.Name)
		}
	}
	return nil
}

// repeated returns an error for a flag with the tag once that is on the command line twice: the last
// one alone would count.
func repeated(k *kong.Context) error {
	given := map[*kong.Value]bool{}
	for _, element := range k.Path {
		f := element.Flag
		if f == nil || element.Resolved || !f.Tag.Has("once") {
			continue
		}
		if given[f.Value] {
			also := ""
			if f.Name == "repo" {
				also = "; the lock of a second repository is --also repo:URL#NAME"
			}
			return fault.New(fault.Usage, "--%s is given twice%s", f.Name, also)
		}
		given[f.Value] = true
	}
	return nil
}

// blank reports whether a text, a list or a map is empty, or contains an empty text.
func blank(v reflect.Value) bool {
	switch v.Kind() {
	case reflect.String, reflect.Map:
		return v.Len() == 0
	case reflect.Slice:
		for i := range v.Len() {
			if blank(v.Index(i)) {
				return true
			}
		}
		return v.Len() == 0
	default:
		return false
	}
}

// called returns the field of cli whose command the arguments might call: the first word that is
// the name of one.
func called(args []string) (field reflect.StructField, ok bool) {
	commands := map[string]reflect.StructField{}
	for f := range reflect.TypeFor[cli]().Fields() {
		if _, ok := f.Tag.Lookup("cmd"); ok {
			commands[commandName(f)] = f
		}
	}
	if end := slices.Index(args, "--"); end >= 0 {
		args = args[:end]
	}
	for _, word := range args {
		if field, ok = commands[word]; ok {
			break
		}
	}
	return field, ok
}

// hidden reports whether the command of a field has no help.
func hidden(field reflect.StructField) bool {
	_, ok := field.Tag.Lookup("hidden")
	return ok
}

// commandName returns the name that kong gives to the command of a field.
func commandName(field reflect.StructField) string {
	var name strings.Builder
	for i, r := range field.Name {
		if i > 0 && unicode.IsUpper(r) {
			name.WriteByte('-')
		}
		name.WriteRune(unicode.ToLower(r))
	}
	return name.String()
}
