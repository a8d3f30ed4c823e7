package main

import (
	"fmt"
	"os"
	"runtime"

	"github.com/mattn/go-isatty"
	"golang.org/x/term"

	"github.com/repolock/repolock/internal/child"
)

// onTerminal reports whether stderr is a terminal that can erase a line, and that isn't
// somebody else's at the moment: a shell's, whose background job we are.
func onTerminal() bool { return erasable(os.Stderr) && child.Foreground() }

// erasable reports whether a file is a terminal on which what was written can be erased.
func erasable(f *os.File) bool {
	name := os.Getenv("TERM")
	return isatty.IsTerminal(f.Fd()) && name != "dumb" && (name != "" || runtime.GOOS == "windows")
}

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
	was := r.erased()
	if text != "" {
		r.shown = fit(escape(text)) + "\r"
	}
	if was != "" || r.shown != "" {
		fmt.Fprint(r.stderr, was+r.shown)
	}
	return true
}

// erased is what erases the live line, which is forgotten. If we are in the background by
// now, nothing does: what is written last is the shell's.
func (r *reporter) erased() string {
	was := r.shown
	r.shown = ""
	if was == "" || !r.terminal() {
		return ""
	}
	return erase
}

// erase erases the line, and all below. Not from the very corner of a screen: there tmux
// takes it for a clear, and keeps what was erased.
const erase = "\r \x1b[J\r"

// fit cuts a text to the terminal's width: what is wrapped isn't erased. If the terminal
// is made narrower, it wraps it all the same; so the cursor is left where it begins, and
// all below is erased.
func fit(text string) string {
	if width, _, err := term.GetSize(int(os.Stderr.Fd())); err == nil && width > 1 {
		return cut(text, width-1)
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
