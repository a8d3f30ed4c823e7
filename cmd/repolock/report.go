package main

import (
	"fmt"
	"io"
	"os"
	"runtime"
	"strings"
	"sync"
	"time"

	"github.com/mattn/go-isatty"

	"github.com/repolock/repolock/cmd/internal/also"
	"github.com/repolock/repolock/cmd/internal/events"
	"github.com/repolock/repolock/cmd/internal/session"
	"github.com/repolock/repolock/internal/clock"
	"github.com/repolock/repolock/internal/procgroup"
	"github.com/repolock/repolock/internal/text"
	"github.com/repolock/repolock/replock"
)

// reporter prints results on stdout, and everything else on stderr. The output of the wrapped command doesn't
// pass through it. It can be used concurrently.
type reporter struct {
	global
	command        string // of repolock; "" if the command line names none
	stdout, stderr io.Writer
	terminal       func() terminal      // of stderr; nil: none
	elapsed        func() time.Duration // the clock of waits; nil: the time since boot

	output sync.Mutex // guards stdout, stderr and shown
	shown  string     // the live line

	waiting
}

// terminal is what a reporter can draw on.
type terminal int

const (
	noTerminal      terminal = iota // a file or a pipe, or a terminal in whose background we are
	dumbTerminal                    // a terminal that can't erase a line
	erasingTerminal                 // any other terminal
)

// stderrTerminal returns which terminal stderr is now.
func stderrTerminal() terminal {
	switch {
	case !isatty.IsTerminal(os.Stderr.Fd()) || !procgroup.Foreground():
		return noTerminal
	case erasable(os.Stderr):
		return erasingTerminal
	default:
		return dumbTerminal
	}
}

func (r *reporter) on() terminal {
	if r.terminal == nil {
		return noTerminal
	}
	return r.terminal()
}

// showsOn reports whether stderr is such a terminal, and the progress of work is shown there.
func (r *reporter) showsOn(t terminal) bool { return !r.Quiet && !r.JSON && r.on() == t }

// Say prints a line on stderr, but not with --quiet, nor with --json, which prints one object there.
func (r *reporter) Say(format string, args ...any) {
	if !r.Quiet && !r.JSON {
		r.line("", fmt.Sprintf(format, args...))
	}
}

func (r *reporter) line(kind, message string) {
	r.output.Lock()
	defer r.output.Unlock()
	r.draw(hanging("repolock: "+kind+text.Escape(message), terminalWidth(os.Stderr))+"\n", r.shown)
}

// fail prints an error and returns its exit code.
func (r *reporter) fail(err error) int {
	out := newJSONError(r, err)
	if r.JSON {
		_ = r.object(r.stderr, out)
		return out.ExitCode
	}
	r.line("error: ", out.words(r.Verb))
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
	r.output.Lock()
	defer r.output.Unlock()
	_, err = fmt.Fprintf(w, "%s\n", line)
	return err
}

func (r *reporter) printEvent(e replock.Event) {
	switch e.Kind {
	case replock.EventWatching:
		for _, h := range e.Holders {
			r.Say("watching for up to %s whether a lock is stale: %s", text.Duration(h.TTL), r.named(h))
		}
	case replock.EventRetrying:
		if r.Verb {
			r.Say("a request failed, and is repeated for at most %s: %s", atMost(e.Left), session.Words(e.Err, ""))
		}
	case replock.EventReaped:
		for _, h := range e.Holders[:min(len(e.Holders), maxListed)] {
			r.Say("removed a stale lock: %s", r.named(h))
		}
		if more := len(e.Holders) - maxListed; more > 0 {
			r.Say("removed %d more stale locks", more)
		}
	case replock.EventRefreshFailed:
		r.Say("refreshing the lock failed (%d of 3; it is lost in %s): %s", e.Failures, text.Duration(e.Left), session.Words(e.Err, ""))
	case events.DirectoryCreated:
		r.Alert("directory_created", "created the directory of "+e.Key+", which was missing: check that the other program locks in this directory, too")
	case events.PasswordExposed:
		r.Alert("password_exposed", "all users of this machine can read the password file of "+e.Key+": run chmod 600 on it")
	case replock.EventReleaseFailed:
		what := "a lock is left to expire"
		if also.Known(e.Key) {
			what = "the lock could not be released, and might stay"
		}
		r.Say("warning: %s: %s", what, session.Words(e.Err, ""))
	default:
		if r.Verb {
			r.Say("%s: %s lock %s, key %s", e.Kind, e.Mode, e.ID, e.Key)
		}
	}
}

// named describes a lock. With --verbose it names the keys.
func (r *reporter) named(i replock.Info) string {
	if r.Verb {
		return i.String()
	}
	return holder(i, 0)
}

// stamp formats a time for people.
func stamp(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05Z") }

// result prints a result on stdout: v with --json, or else words.
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

// print prints a text on stdout, also with --json.
func (r *reporter) print(text string) (int, error) {
	_, err := io.WriteString(r.stdout, text)
	return 0, err
}

// maxListed is the number of lines that list prints.
const maxListed = 10

// list prints the first lines, and how many it leaves out.
func list(b *strings.Builder, indent string, lines []string) {
	for i, line := range lines {
		if i == maxListed {
			fmt.Fprintf(b, "%sand %d more\n", indent, len(lines)-i)
			break
		}
		fmt.Fprintf(b, "%s%s\n", indent, text.Escape(line))
	}
}

// erasable reports whether a file is a terminal that can erase a line.
func erasable(f *os.File) bool {
	name := os.Getenv("TERM")
	return isatty.IsTerminal(f.Fd()) && name != "dumb" && (name != "" || runtime.GOOS == "windows")
}

// live draws the live line, which replaces the last one and stays below all other lines. An empty line erases
// it. live reports whether the terminal can show it.
func (r *reporter) live(line string) bool {
	if line != "" && !r.showsOn(erasingTerminal) {
		return false
	}
	r.output.Lock()
	defer r.output.Unlock()
	if line != "" {
		line = text.Escape(line)
		if width := terminalWidth(os.Stderr); width > 1 { // a wrapped line isn't erased
			line = cut(line, width-1)
		}
		line += "\r"
	}
	r.draw("", line)
	return true
}

// draw erases the live line, and writes lines and a new live line. In the background it does neither with
// the live line, because the shell may have written the last line of the terminal.
func (r *reporter) draw(lines, live string) {
	switch {
	case r.shown != "" && r.on() == erasingTerminal:
		lines = erase + lines
	case lines != "":
		live = ""
	}
	if r.shown = live; lines+live != "" {
		fmt.Fprint(r.stderr, lines+live)
	}
}

// erase erases the live line and everything below, because a terminal that becomes narrower wraps the line. It
// erases from the second column: in the corner of the screen tmux takes the sequence for a clear of the screen,
// and keeps the erased text in its history.
const erase = "\r \x1b[J\r"
