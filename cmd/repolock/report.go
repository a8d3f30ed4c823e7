package main

import (
	"fmt"
	"io"
	"os"
	"runtime"
	"strings"
	"sync"
	"text/tabwriter"
	"time"

	"github.com/mattn/go-isatty"
	"golang.org/x/term"

	"github.com/repolock/repolock/internal/clock"
	"github.com/repolock/repolock/internal/procgroup"
	"github.com/repolock/repolock/internal/text"
	"github.com/repolock/repolock/replock"
)

// reporter prints results on stdout, and all else on stderr, apart from the output of the
// command. It can be used concurrently.
type reporter struct {
	global
	mu             sync.Mutex
	stdout, stderr io.Writer
	terminal       func() bool // reports whether stderr is one, and ours
	shown          string      // the live line
}

// Say prints a line on stderr, unless --quiet, or --json, which keeps stderr for one
// object.
func (r *reporter) Say(format string, args ...any) {
	if !r.Quiet && !r.JSON {
		r.line("", fmt.Sprintf(format, args...))
	}
}

func (r *reporter) line(kind, message string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	shown, was := r.shown, r.erased()
	if was != "" {
		r.shown = shown
	}
	fmt.Fprintf(r.stderr, "%srepolock: %s%s\n%s", was, kind, text.Escape(message), r.shown)
}

// fail prints an error and returns its exit code.
func (r *reporter) fail(err error) int {
	out := newJSONError(r, err)
	if r.JSON {
		_ = r.object(r.stderr, out)
		return out.ExitCode
	}
	r.line("error: ", out.Message)
	if out.Suggestion != "" {
		r.line("hint: ", out.Suggestion)
	}
	return out.ExitCode
}

// Alert prints a line on stderr even with --quiet.
func (r *reporter) Alert(name, text string) {
	if r.JSON {
		_ = r.object(r.stderr, struct {
			Warning string    `json:"warning"`
			Message string    `json:"message"`
			Time    time.Time `json:"timestamp"`
		}{name, text, clock.System{}.Now().UTC()})
		return
	}
	r.line("warning: ", text)
}

// object prints JSON in one line.
func (r *reporter) object(w io.Writer, v any) error {
	line, err := text.Marshal(v)
	if err != nil {
		panic(err) // strings and numbers always encode
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	_, err = fmt.Fprintf(w, "%s\n", line)
	return err
}

func (r *reporter) Event(e replock.Event) {
	switch e.Kind {
	case replock.EventWatching:
		for _, h := range e.Holders {
			r.Say("waiting up to %v: %s", h.TTL, h)
		}
	case replock.EventReaped:
		for _, h := range e.Holders {
			r.Say("removed a stale lock: %s", h)
		}
	case replock.EventRefreshFailed:
		r.Say("refreshing the lock failed (%d of 3; it is lost in %v): %s", e.Failures, e.Left.Round(time.Second), text.Error(e.Err))
	case replock.EventReleaseFailed:
		r.Say("warning: a lock is left to expire: %s", text.Error(e.Err))
	default:
		if r.Verb {
			r.Say("%s: %s lock %s, key %s", e.Kind, e.Mode, e.ID, e.Key)
		}
	}
}

// stamp formats a time for people.
func stamp(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05Z") }

// shortStamp is stamp without the day, if that is today.
func shortStamp(t time.Time) string {
	today, _, _ := strings.Cut(stamp(clock.System{}.Now()), " ")
	return strings.TrimPrefix(stamp(t), today+" ")
}

// result prints a result on stdout: as JSON, or as a text for people.
func (r *reporter) result(v any, words string) error {
	if r.JSON {
		raw, err := text.MarshalIndent(v, "", "  ")
		if err != nil {
			return err
		}
		words = string(raw) + "\n"
	}
	if words == "" {
		return nil
	}
	_, err := io.WriteString(r.stdout, words)
	return err
}

// maxListed is the number of lines that list prints.
const maxListed = 10

// list prints the first of some lines, and how many others there are.
func list(b *strings.Builder, indent string, lines []string) {
	for i, line := range lines {
		if i == maxListed {
			fmt.Fprintf(b, "%sand %d more\n", indent, len(lines)-i)
			break
		}
		fmt.Fprintf(b, "%s%s\n", indent, text.Escape(line))
	}
}

// aligned aligns the cells of rows, which have tabs between them.
func aligned(rows ...string) string {
	var b strings.Builder
	t := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, strings.Join(rows, "\n"))
	t.Flush()
	return b.String()
}

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
