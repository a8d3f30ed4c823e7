// Package docblocks extracts the commands of the project's pages, so that tests can run them.
package docblocks

import (
	"fmt"
	"os"
	"regexp"
	"strings"
)

// Page is a page in Markdown. Its parts are in the order of the text.
type Page struct {
	// Fenced are the blocks between fences, by the language after the fence.
	Fenced map[string][]string
	// Inline are the texts between backquotes in a line.
	Inline []string
	// Indented are the lines of blocks without a fence.
	Indented []string
}

var inline = regexp.MustCompile("`([^`]+)`")

// Read reads a page.
func Read(name string) (Page, error) {
	raw, err := os.ReadFile(name)
	if err != nil {
		return Page{}, err
	}
	return parse(string(raw)), nil
}

// ReadSection reads a part of a page: from the heading with this text to the next one.
func ReadSection(name, title string) (Page, error) {
	raw, err := os.ReadFile(name)
	if err != nil {
		return Page{}, err
	}
	var section []string
	in, found, fenced := false, false, false
	for _, line := range strings.Split(string(raw), "\n") {
		if strings.HasPrefix(line, "```") {
			fenced = !fenced
		}
		if text := strings.TrimLeft(line, "#"); !fenced && text != line {
			in = strings.TrimSpace(text) == title
			found = found || in
		} else if in {
			section = append(section, line)
		}
	}
	if !found {
		return Page{}, fmt.Errorf("%s has no section %q", name, title)
	}
	return parse(strings.Join(section, "\n")), nil
}

func parse(text string) Page {
	p := Page{Fenced: map[string][]string{}}
	var prose, block []string
	kind, fenced := "", false
	for _, line := range strings.Split(text, "\n") {
		is, fence := strings.CutPrefix(strings.TrimLeft(line, " "), "```")
		switch {
		case fence && fenced:
			p.Fenced[kind] = append(p.Fenced[kind], strings.Join(block, "\n")+"\n")
			fenced, block = false, nil
		case fence:
			kind, fenced = strings.TrimSpace(is), true
		case fenced:
			block = append(block, line)
		case strings.HasPrefix(line, "    ") || strings.HasPrefix(line, "\t"):
			p.Indented = append(p.Indented, strings.TrimSpace(line))
		default:
			prose = append(prose, line)
		}
	}
	// Text between backquotes can continue in the next line.
	for _, m := range inline.FindAllStringSubmatch(strings.Join(prose, "\n"), -1) {
		p.Inline = append(p.Inline, strings.Join(strings.Fields(m[1]), " "))
	}
	return p
}

// Script returns all the shell blocks of the page, as one script.
func (p Page) Script() string { return strings.Join(p.Fenced["sh"], "") }

// Lines are the script's lines, without comments and empty ones.
func (p Page) Lines() []string { return lines(p.Script()) }

// Crontab returns the commands of the page's crontab entries, as cron passes them to a shell.
func (p Page) Crontab() []string {
	var commands []string
	for _, line := range lines(strings.Join(p.Fenced["crontab"], "")) {
		if m := entry.FindStringSubmatch(line); m != nil {
			commands = append(commands, m[1])
		}
	}
	return commands
}

// entry is a time in five fields, or a word for one, and a command.
var entry = regexp.MustCompile(`^(?:@\w+|(?:[-0-9*,/]+\s+){5})\s*(.*)$`)

func lines(text string) []string {
	var ls []string
	for _, l := range strings.Split(text, "\n") {
		if l = strings.TrimSpace(l); l != "" && !strings.HasPrefix(l, "#") {
			ls = append(ls, l)
		}
	}
	return ls
}
