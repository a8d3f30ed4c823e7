package main

import (
	"fmt"
	"os"

	"github.com/mattn/go-isatty"
	"golang.org/x/term"

	"github.com/repolock/repolock/internal/child"
)

// onTerminal reports whether stderr is a terminal that can erase a line, and that isn't
// somebody else's at the moment: a shell's, whose background job we are.
func onTerminal() bool { return erasable(os.Stderr) && child.Foreground() }

// erasable reports whether a file is a terminal on which what was written can be erased.
func erasable(f *os.File) bool { return isatty.IsTerminal(f.Fd()) && os.Getenv("TERM") != "dumb" }

// animated reports whether a live line is shown.
func (r *reporter) animated() bool { return !r.Quiet && !r.JSON && r.terminal() }

// live shows a line in place of the live line before, below all other lines, and reports
// whether it could. An empty one ends that.
func (r *reporter) live(text string) bool {
	if text != "" && !r.animated() {
		return false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if was := r.erased(); text != "" || was != "" {
		r.shown = fit(escape(text))
		fmt.Fprint(r.stderr, was+r.shown)
	}
	return true
}

// erased is what erases the live line.
func (r *reporter) erased() string {
	if r.shown == "" {
		return ""
	}
	return "\r\x1b[K"
}

// fit cuts a text to the terminal's width, with a ^C at its end: what is wrapped isn't
// erased.
func fit(text string) string {
	if width, _, err := term.GetSize(int(os.Stderr.Fd())); err == nil && width > 4 {
		return cut(text, width-3)
	}
	return text
}

// cut shortens a text to so many characters.
func cut(text string, width int) string {
	if runes := []rune(text); len(runes) > width {
		return string(runes[:width-1]) + "…"
	}
	return text
}
