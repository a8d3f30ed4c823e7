package main

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/alecthomas/kong"

	"github.com/repolock/repolock/internal/fault"
	"github.com/repolock/repolock/internal/man"
	"github.com/repolock/repolock/internal/text"
	"github.com/repolock/repolock/store/open"
)

// helpWidth is the number of columns of all help: a terminal's that nobody has changed.
const helpWidth = 80

// helpCmd prints what --help prints, or a topic that concerns several commands.
type helpCmd struct {
	Topic string `predictor:"topic" arg:"" optional:"" help:"A command, or one of flags, urls and exit-codes."`
}

func (c helpCmd) run(r *reporter, _ global) (int, error) {
	if c.Topic == "" {
		return r.print(overview())
	}
	app := model()
	for _, t := range topics {
		if t.name == c.Topic {
			return r.print(t.text(app))
		}
	}
	if listed, ok := called([]string{c.Topic}); ok && listed.tag != hidden {
		return r.print(commandHelp(nodeOf(app, c.Topic)))
	}
	hint := "see repolock help"
	for _, t := range topics {
		if strings.HasPrefix(t.name, c.Topic) {
			hint = "did you mean repolock help " + t.name + "?"
		}
	}
	return 0, fault.Advise(fault.New(fault.Usage, "there is no help on %.80s", c.Topic), hint)
}

// topics are what help prints beside the commands.
var topics = []struct {
	name, brief string
	text        func(*kong.Application) string
}{
	{"flags", "the flags that several commands share", flagsHelp},
	{"urls", "how repositories and other systems' locks are named", func(*kong.Application) string { return urlsHelp() }},
	{"exit-codes", "what each exit code means", func(*kong.Application) string { return exitCodes + "\n" }},
}

// printHelp is what --help prints.
func printHelp(_ kong.HelpOptions, ctx *kong.Context) error {
	help := overview()
	if node := ctx.Selected(); node != nil {
		help = commandHelp(node)
	}
	_, err := io.WriteString(ctx.Stdout, help)
	return err
}

// summary is the beginning of the overview, and briefly what is printed when no command is given.
const (
	summary = `Run a backup, restore or prune under a lock in the backup repository itself:

  repolock backup -- restic backup /home     beside other backups and restores
  repolock prune --wait 1h -- restic prune   alone
  repolock status                            who holds what
`
	briefly = summary + `
-r, REPOLOCK_REPO or a configuration file names the repository. The commands:
repolock help
`
)

// overview lists the commands.
func overview() string {
	var b strings.Builder
	b.WriteString(summary)
	for _, g := range groups[:len(groups)-1] {
		fmt.Fprintf(&b, "\n%s:\n", g.title)
		for _, c := range g.commands {
			fmt.Fprintf(&b, "  %-11s %s\n", c.name, c.help)
		}
	}
	b.WriteString("\nMore help:\n  repolock help COMMAND      a command, with its flags and examples\n")
	for _, t := range topics {
		fmt.Fprintf(&b, "  %-26s %s\n", "repolock help "+t.name, t.brief)
	}
	return b.String()
}

func nodeOf(app *kong.Application, name string) *kong.Node {
	i := slices.IndexFunc(app.Children, func(n *kong.Node) bool { return n.Name == name })
	return app.Children[i]
}

// commandHelp is the help of one command: its use, two examples, and its flags. Of those that commands
// share the common ones have a line each, and the rare ones are named.
func commandHelp(node *kong.Node) string {
	var b strings.Builder
	fmt.Fprintf(&b, "Usage: repolock %s\n", usage(node))
	if listed, _ := called([]string{node.Name}); listed.example != "" { // a hidden command has none
		fmt.Fprintf(&b, "\n%s\n\n  %s\n  %s\n", text.Wrap(node.Help, helpWidth, ""), listed.example, listed.second)
	}
	if node.Detail != "" {
		for paragraph := range strings.SplitSeq(node.Detail, "\n\n") {
			if !strings.HasPrefix(paragraph, " ") { // a command line
				paragraph = text.Wrap(paragraph, helpWidth, "")
			}
			fmt.Fprintf(&b, "\n%s\n", paragraph)
		}
	}
	var own, shared string
	also := "Also "
	for _, f := range visible(node.Flags) {
		switch brief := f.Tag.Get("brief"); {
		case f.Tag.Has("rare"):
			also += "--" + f.Name + ", "
		case brief != "":
			shared += described(f, brief)
		default:
			own += described(f, f.Help)
		}
	}
	if own != "" {
		b.WriteString("\n" + own)
	}
	if shared != "" {
		b.WriteString("\nAbout the lock (in full: repolock help flags):\n" + shared)
	}
	also += "--repo (-r), --name, --config, --json, -q and -v: see repolock help flags"
	b.WriteString("\n" + text.Wrap(also, helpWidth, "") + "\n")
	return b.String()
}

// usage returns the synopsis of a command, without repolock: run --shared|--exclusive [flags] -- COMMAND
func usage(node *kong.Node) string {
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

// visible returns the flags that help shows.
func visible(flags []*kong.Flag) []*kong.Flag {
	return slices.DeleteFunc(slices.Clone(flags), func(f *kong.Flag) bool { return f.Hidden })
}

// flagsHelp describes the flags that commands share, each once.
func flagsHelp(app *kong.Application) string {
	var b strings.Builder
	b.WriteString("Flags of all commands:\n")
	for _, f := range visible(app.Flags) {
		b.WriteString(described(f, f.Help))
	}
	b.WriteString("\nFlags of backup, restore, prune, run, and mostly of acquire:\n")
	for _, f := range sharedFlags(app) {
		b.WriteString(described(f, f.Help))
	}
	return b.String()
}

// sharedFlags returns the flags that several commands have, which have a brief text of their own.
func sharedFlags(app *kong.Application) []*kong.Flag {
	return slices.DeleteFunc(visible(nodeOf(app, "backup").Flags), func(f *kong.Flag) bool { return f.Tag.Get("brief") == "" })
}

// flagColumn is where the descriptions of flags begin.
const flagColumn = 29

// described returns the lines of a flag.
func described(f *kong.Flag, help string) string {
	name := "  " + man.Names(f)
	lines := text.Wrap(help, helpWidth, strings.Repeat(" ", flagColumn))
	if help == "" { // of a hidden command
		return name + "\n"
	}
	if len(name)+2 > flagColumn {
		return name + "\n" + lines + "\n"
	}
	return name + lines[len(name):] + "\n"
}

// urlsHelp describes the names of repositories.
func urlsHelp() string {
	var b strings.Builder
	b.WriteString("--repo (-r), REPOLOCK_REPO or a configuration file names the repository:\n\n")
	row := func(url, means string) { fmt.Fprintf(&b, "  %-32s%s\n", url, means) }
	row("/srv/repo, ../repo", "a directory, the same for all machines")
	for _, s := range open.Schemes() {
		row(s.Example, s.Help)
	}
	row("prod", "a name in the configuration file")
	b.WriteString(`
Options follow a question mark, with & between them:

  s3:     endpoint=https://HOST  region=  profile=  path-style=true
          conditions=  if-match=unquoted
  minio:  alias= (of mc)  tls=false  region=  conditions=
  b2:     endpoint=

conditions=kept saves round trips on a server that is known to keep conditional
puts; repolock doctor says whether it does.

Credentials are never part of a URL. They are read from:

`)
	for _, s := range open.Schemes() {
		if s.Environment != "" {
			lines := text.Wrap(s.Environment, helpWidth, strings.Repeat(" ", 10))
			fmt.Fprintf(&b, "  %-8s%s\n", s.Name+":", lines[10:])
		}
	}
	b.WriteString(`
restic's s3:https://HOST/BUCKET/PATH is s3://BUCKET/PATH?endpoint=https://HOST,
its b2:BUCKET:PATH is b2://BUCKET/PATH.

Locks of other systems (--also):

  redis://HOST/DB?key=NAME        postgres://HOST/DB?key=NAME
  tower-fleet:DIR/NAME            beads:DIR
  repo:URL#NAME                   the named lock of another repository
`)
	return b.String()
}
