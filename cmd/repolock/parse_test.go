package main

import (
	"io"
	"reflect"
	"testing"

	"github.com/alecthomas/kong"
	"github.com/google/go-cmp/cmp"
)

// TestNarrowParser: the parser for one command knows it as the whole parser does, but for the
// variables of help texts.
func TestNarrowParser(t *testing.T) {
	whole := newParser(&cli{}).Model
	type known struct {
		name, help, detail string
		flags              []string
		arguments          []string
		tags               string
	}
	know := func(n *kong.Node) known {
		k := known{name: n.Name, help: n.Help, detail: n.Detail}
		for _, group := range n.AllFlags(false) {
			for _, f := range group {
				k.flags = append(k.flags, f.String()+"|"+f.OrigHelp+"|"+f.Default+"|"+f.Enum)
			}
		}
		for _, p := range n.Positional {
			k.arguments = append(k.arguments, p.Summary()+p.OrigHelp)
		}
		for _, name := range []string{"hidden", "noconfig"} {
			if n.Tag.Has(name) {
				k.tags += name
			}
		}
		return k
	}
	for _, child := range whole.Children {
		field, ok := called([]string{"-q", child.Name, "version"})
		if !ok {
			t.Errorf("%s isn't found", child.Name)
			continue
		}
		narrow := newNarrowParser(&cli{}, field).Model
		if len(narrow.Children) != 1 || narrow.Name != whole.Name || narrow.Detail != whole.Detail {
			t.Errorf("%s has %d commands beside it", child.Name, len(narrow.Children)-1)
		}
		if diff := cmp.Diff(know(child), know(narrow.Children[0]), cmp.AllowUnexported(known{})); diff != "" {
			t.Error(diff)
		}
	}
}

// TestParseNarrowly: what the parser for one command accepts means the same to the whole parser,
// and it accepts what is right.
func TestParseNarrowly(t *testing.T) {
	t.Setenv("REPOLOCK_REPO", "")
	for _, c := range []struct {
		args     []string
		accepted bool
	}{
		{[]string{"backup", "--", "true"}, true},
		{[]string{"-r", "x", "--json", "run", "--shared", "--ttl=20s", "--metadata", "A=b", "--", "sh", "-c", "status"}, true},
		{[]string{"-qr", "x", "prune", "--wait", "forever", "restic", "--help"}, true},
		{[]string{"break-lock", "--yes", "--id", "x"}, true},
		{[]string{"acquire", "--exclusive", "--for-pid", "none"}, true},
		{[]string{"doctor", "x", "--also", "a,b", "--also", "c"}, true},
		{[]string{"version"}, true},
		{[]string{"--name", "x", "status", "-r", "y"}, true},
		{[]string{"complete", "--", "-r", ""}, true},
		{[]string{"-r", "status", "status"}, true},
		{[]string{"-r", "backup", "run", "--no-lock", "--", "true"}, false}, // the wrong guess
		{[]string{"--name=run", "--config", "prune", "backup", "--", "x"}, false},
		{[]string{"breaklock"}, false},
		{[]string{"Backup", "--", "true"}, false},
		{[]string{"--", "backup"}, false},
		{[]string{"backup", "--help"}, false},
		{[]string{"version", "--help"}, false},
		{[]string{"-qh", "run"}, false},
		{[]string{"status", "--foo"}, false},
		{[]string{"run", "--on-lost", "hope", "--", "x"}, false},
		{[]string{"bakcup"}, false},
		{nil, false},
	} {
		narrow := parseNarrowly(c.args)
		if narrow != nil != c.accepted {
			t.Errorf("%q: accepted: %t", c.args, narrow != nil)
		}
		whole := &parsed{}
		err := whole.parse(c.args, func(options ...kong.Option) *kong.Kong {
			return newParser(&whole.cli, append(options, kong.Writers(io.Discard, io.Discard))...)
		})
		if narrow == nil {
			continue
		}
		if err != nil || whole.helped || narrow.selected.Name != whole.selected.Name || !reflect.DeepEqual(narrow.cli.global, whole.cli.global) {
			t.Errorf("%q: %s, %+v, and whole (%v) %+v", c.args, narrow.selected.Name, narrow.cli.global, err, whole)
			continue
		}
		got, want := narrow.selected.Target.Interface(), whole.selected.Target.Interface()
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%q: %+v, and whole %+v", c.args, got, want)
		}
	}
}
