package main

import (
	"fmt"
	"os"
	"runtime"

	"github.com/mattn/go-isatty"
	"golang.org/x/term"

	"github.com/repolock/repolock/internal/procgroup"
	"github.com/repolock/repolock/internal/text"
)

// onTerminal reports whether stderr is a terminal that can erase a line, and we are in its
// foreground.
func onTerminal() bool { return erasable(os.Stderr) && procgroup.Foreground() }

// erasable reports whether a file is a terminal that can erase a line.
func erasable(f *os.File) bool {
	name := os.Getenv("TERM")
	return isatty.IsTerminal(f.Fd()) && name != "dumb" && (name != "" || runtime.GOOS == "windows")
}

// animated reports whether a live line is shown.
func (r *reporter) animated() bool { return !r.Quiet && !r.JSON && r.terminal() }

// live shows a line in place of the last live line, below all other lines, and reports
// whether it could. An empty line ends that.
func (r *reporter) live(line string) bool {
	if line != "" && !r.animated() {
		return false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	was := r.erased()
	if line != "" {
		r.shown = fit(text.Escape(line)) + "\r"
	}
	if was != "" || r.shown != "" {
		fmt.Fprint(r.stderr, was+r.shown)
	}
	return true
}

// erased forgets the live line and returns the escape sequence that clears it, or "" in the
// background, where the last line belongs to the shell.
func (r *reporter) erased() string {
	was := r.shown
	r.shown = ""
	if was == "" || !r.terminal() {
		return ""
	}
	return erase
}

// erase erases the line, and all below. It begins one column to the right: in the corner of
// the screen tmux takes it for a clear, and keeps the erased text.
const erase = "\r \x1b[J\r"

// fit cuts a text to the terminal's width, because a wrapped line isn't erased. A terminal
// that becomes narrower wraps it all the same. So the cursor stays at its beginning, and
// erase erases all below.
func fit(text string) string {
	if width, _, err := term.GetSize(int(os.Stderr.Fd())); err == nil && width > 1 {
		return cut(text, width-1)
	}
	return text
}

func cut(text string, width int) string {
	if runes := []rune(text); len(runes) > width {
		return string(runes[:width-1]) + "…"
	}
	return text
}
