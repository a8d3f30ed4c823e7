// Package man writes the manual page of a program that kong parses.
package man

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/alecthomas/kong"
)

// Page is a manual page of section 1. It has the commands and flags of App in their order, but no hidden ones.
type Page struct {
	App         *kong.Application       // the program
	Date        time.Time               // only the day is written
	Description string                  // paragraphs, with an empty line between them
	Usage       func(*kong.Node) string // returns the synopsis of a command, without the program's name
	Shared      []*kong.Flag            // flags of several commands, which have a section of their own
	Sections    []Section               // the sections after the commands
}

// Section is a section with a text and a list. Each item of the list gets a bullet.
type Section struct {
	Title string   // printed in capital letters
	Text  string   // paragraphs, as in Page.Description
	Items []string // one line each
}

// String returns the page in the man macros of roff.
func (p Page) String() string {
	var w writer
	w.request("TH", fmt.Sprintf(`%s 1 "%s" "%s" "User Commands"`, strings.ToUpper(p.App.Name), p.Date.Format(time.DateOnly), p.App.Name))
	w.section("Name")
	w.text(p.App.Name + " - " + strings.TrimSuffix(p.App.Help, "."))
	w.section("Synopsis")
	w.line(bold(p.App.Name) + ` \fIcommand\fP [\fIflags\fP] [\fIargument\fP ...]`)
	w.section("Description")
	w.text(p.Description)
	w.section("Options")
	w.flags(p.App.Flags)
	w.section("Commands")
	w.shared = p.Shared
	for _, command := range p.App.Children {
		if !command.Hidden {
			w.command(p.Usage(command), command)
		}
	}
	if len(p.Shared) > 0 {
		w.section("Flags of several commands")
		w.shared = nil
		w.flags(p.Shared)
	}
	for _, s := range p.Sections {
		w.section(s.Title)
		w.text(s.Text)
		for _, item := range s.Items {
			w.request("IP", `\(bu 3`)
			w.text(item)
		}
	}
	return w.String()
}

// writer collects lines of roff.
type writer struct {
	strings.Builder
	shared []*kong.Flag // flags that a command names without describing them
}

// request writes a macro. args must be escaped.
func (w *writer) request(macro, args string) { w.line(strings.TrimSpace("." + macro + " " + args)) }

func (w *writer) line(roff string) { w.WriteString(roff + "\n") }

func (w *writer) section(title string) { w.request("SH", escape(strings.ToUpper(title))) }

func (w *writer) command(usage string, command *kong.Node) {
	w.request("SS", escape(usage))
	w.text(command.Help)
	if command.Detail != "" {
		w.request("PP", "")
		w.text(command.Detail)
	}
	w.flags(command.Flags)
}

func (w *writer) flags(flags []*kong.Flag) {
	var elsewhere []string
	for _, f := range flags {
		switch {
		case f.Hidden:
			continue
		case slices.ContainsFunc(w.shared, func(s *kong.Flag) bool { return s.Name == f.Name && s.Help == f.Help }):
			elsewhere = append(elsewhere, "--"+f.Name)
			continue
		}
		w.request("TP", "")
		w.line(bold(Names(f)))
		w.text(f.Help)
	}
	if len(elsewhere) > 0 {
		w.request("PP", "")
		w.text("Also, described below: " + strings.Join(elsewhere, ", ") + ".")
	}
}

// Names returns the names of a flag: -f, --flag=VALUE.
func Names(f *kong.Flag) string {
	if f.Short != 0 {
		return "-" + string(f.Short) + ", " + f.Summary()
	}
	return f.Summary()
}

// text writes paragraphs, which an empty line separates. If a paragraph begins with a space, it keeps the paragraph's
// lines.
func (w *writer) text(text string) {
	for i, paragraph := range strings.Split(text, "\n\n") {
		lines := strings.Split(strings.Trim(paragraph, "\n"), "\n")
		if i > 0 {
			w.request("PP", "")
		}
		verbatim := strings.HasPrefix(lines[0], " ")
		if verbatim {
			w.request("nf", "")
		}
		for _, line := range lines {
			w.line(escape(line))
		}
		if verbatim {
			w.request("fi", "")
		}
	}
}

func bold(text string) string { return `\fB` + escape(text) + `\fP` }

// special escapes the characters that roff interprets or prints as others. roff would print - as a hyphen, which can't
// be pasted into a command line.
var special = strings.NewReplacer(`\`, `\e`, `-`, `\-`, `~`, `\(ti`, `^`, `\(ha`, "`", `\(ga`)

// escape returns a line in the form that roff prints unchanged.
func escape(line string) string {
	line = special.Replace(line)
	if strings.HasPrefix(line, ".") || strings.HasPrefix(line, "'") {
		return `\&` + line
	}
	return line
}
