package cli

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/alecthomas/kong"

	"github.com/repolock/repolock/internal/man"
	"github.com/repolock/repolock/internal/text"
)

// HelpWidth is the width of all help, in columns. Most terminals begin with this width.
const HelpWidth = 80

// Topic is a text of help that isn't about one command.
type Topic struct {
	Name, Brief string
	Text        func(*kong.Application) string
}

// printHelp prints the help for --help.
func (r *Reader) printHelp(_ kong.HelpOptions, ctx *kong.Context) error {
	help := r.Overview()
	if node := ctx.Selected(); node != nil {
		help = r.CommandHelp(node)
	}
	_, err := io.WriteString(ctx.Stdout, help)
	return err
}

// Overview is the help that lists all commands and topics.
func (r *Reader) Overview() string {
	var b strings.Builder
	b.WriteString(r.Summary)
	for _, g := range r.Groups[:len(r.Groups)-1] {
		fmt.Fprintf(&b, "\n%s:\n", g.Title)
		for _, c := range g.Commands {
			fmt.Fprintf(&b, "  %-11s %s\n", c.Name, c.Help)
		}
	}
	b.WriteString("\nMore help:\n  repolock help COMMAND      a command, with its flags and examples\n")
	for _, t := range r.Topics {
		fmt.Fprintf(&b, "  %-26s %s\n", "repolock help "+t.Name, t.Brief)
	}
	return b.String()
}

// NodeOf returns the model of a command.
func NodeOf(app *kong.Application, name string) *kong.Node {
	i := slices.IndexFunc(app.Children, func(n *kong.Node) bool { return n.Name == name })
	return app.Children[i]
}

// CommandHelp is the help of one command: its synopsis, two examples, its details, and its flags. A flag that
// several commands share has one line, or only its name if the flag is rare.
func (r *Reader) CommandHelp(node *kong.Node) string {
	var b strings.Builder
	fmt.Fprintf(&b, "Usage: repolock %s\n", Usage(node))
	if listed, _ := r.Called([]string{node.Name}); listed.Example != "" { // a hidden command has none
		fmt.Fprintf(&b, "\n%s\n\n  %s\n  %s\n", text.Wrap(node.Help, HelpWidth, ""), listed.Example, listed.Second)
	}
	if node.Detail != "" {
		for paragraph := range strings.SplitSeq(node.Detail, "\n\n") {
			fmt.Fprintf(&b, "\n%s\n", text.Wrap(paragraph, HelpWidth, ""))
		}
	}
	var own, shared string
	also := "Also "
	for _, f := range Visible(node.Flags) {
		switch brief := f.Tag.Get("brief"); {
		case f.Tag.Has("rare"):
			also += "--" + f.Name + ", "
		case brief != "":
			shared += describedFlag(f, brief)
		default:
			own += describedFlag(f, f.Help)
		}
	}
	if own != "" {
		b.WriteString("\n" + own)
	}
	if shared != "" {
		b.WriteString("\nAbout the lock (in full: repolock help flags):\n" + shared)
	}
	if !node.Tag.Has("noconfig") {
		also += "--repo (-r), --name, --config, "
	}
	also += "--json, -q and -v: see repolock help flags"
	b.WriteString("\n" + text.Wrap(also, HelpWidth, "") + "\n")
	return b.String()
}

// Usage returns the synopsis of a command: run --shared|--exclusive|--no-lock [flags] -- COMMAND
func Usage(node *kong.Node) string {
	words := []string{node.Name}
	var modes []string
	for _, f := range node.Flags {
		if slices.Contains(f.Xor, "mode") {
			modes = append(modes, "--"+f.Name)
		}
	}
	if len(modes) > 0 {
		words = append(words, strings.Join(modes, "|"))
	}
	words = append(words, "[flags]")
	for _, p := range node.Positional {
		word := strings.ToUpper(p.Name)
		if p.Enum != "" {
			word = strings.ReplaceAll(p.Enum, ",", "|")
		}
		switch {
		case p.Passthrough:
			word = "-- " + word
		case !p.Required:
			word = "[" + word + "]"
		}
		words = append(words, word)
	}
	return strings.Join(words, " ")
}

// Visible returns the flags that help shows.
func Visible(flags []*kong.Flag) []*kong.Flag {
	return slices.DeleteFunc(slices.Clone(flags), func(f *kong.Flag) bool { return f.Hidden })
}

// FlagsHelp describes the flags of all commands, and the flags that several commands share.
func FlagsHelp(app *kong.Application) string {
	var b strings.Builder
	b.WriteString("Flags of all commands:\n")
	for _, f := range Visible(app.Flags) {
		b.WriteString(describedFlag(f, f.Help))
	}
	b.WriteString("\nFlags of backup, restore, prune, run, and mostly of acquire:\n")
	for _, f := range SharedFlags(app) {
		b.WriteString(describedFlag(f, f.Help))
	}
	return b.String()
}

// SharedFlags returns the flags that several commands have: they are tagged with brief.
func SharedFlags(app *kong.Application) []*kong.Flag {
	return slices.DeleteFunc(Visible(NodeOf(app, "backup").Flags), func(f *kong.Flag) bool { return f.Tag.Get("brief") == "" })
}

// flagColumn is the column in which the descriptions of flags begin.
const flagColumn = 29

// describedFlag returns a flag and its help, in lines.
func describedFlag(f *kong.Flag, help string) string {
	name := "  " + man.Names(f)
	lines := text.Wrap(help, HelpWidth, strings.Repeat(" ", flagColumn))
	if help == "" { // of a hidden command
		return name + "\n"
	}
	if len(name)+2 > flagColumn {
		return name + "\n" + lines + "\n"
	}
	return name + lines[len(name):] + "\n"
}

// HungItems returns a paragraph, and items whose further lines are indented.
func HungItems(paragraph string, items ...string) string {
	var b strings.Builder
	b.WriteString(text.Wrap(paragraph, HelpWidth, "") + "\n\n")
	for _, item := range items {
		b.WriteString("  " + strings.TrimLeft(text.Wrap(item, HelpWidth, "    "), " ") + "\n")
	}
	return b.String()
}
