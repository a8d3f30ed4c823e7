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

// reporter prints results on stdout, and all else on stderr, apart from the output of the
// command. It can be used concurrently.
type reporter struct {
	global
	command        string // of repolock; "" if it is none
	mu             sync.Mutex
	stdout, stderr io.Writer
	terminal       func() bool // reports whether stderr is one that can erase a line, and ours
	plain          func() bool // reports whether stderr is any other terminal, and ours; nil: it isn't
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
	r.mu.Lock()
	defer r.mu.Unlock()
	_, err = fmt.Fprintf(w, "%s\n", line)
	return err
}

func (r *reporter) Event(e replock.Event) {
	switch e.Kind {
	case replock.EventWatching:
		for _, h := range e.Holders {
			r.Say("watching a lock that might be stale for up to %s: %s", text.Duration(h.TTL), r.named(h))
		}
	case replock.EventRetrying:
		if r.Verb {
			r.Say("a request has failed, and is sent again for %s at most: %s", atMost(e.Left), session.Words(e.Err, ""))
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
		r.Alert("directory_created", "created the directory of "+e.Key+", which was missing: a program that locks in another directory isn't excluded")
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

// named describes a lock, with its keys if the user wants all details.
func (r *reporter) named(i replock.Info) string {
	if r.Verb {
		return i.String()
	}
	return holder(i, 0)
}

// stamp formats a time for people.
func stamp(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05Z") }

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

// print prints a text, with --json too.
func (r *reporter) print(text string) (int, error) {
	_, err := io.WriteString(r.stdout, text)
	return 0, err
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

// onTerminal reports whether stderr is a terminal that can erase a line, and we are in its
// foreground.
func onTerminal() bool { return erasable(os.Stderr) && procgroup.Foreground() }

// onPlainTerminal reports whether stderr is a terminal that can't erase a line, and we are in its
// foreground.
func onPlainTerminal() bool {
	return isatty.IsTerminal(os.Stderr.Fd()) && !erasable(os.Stderr) && procgroup.Foreground()
}

// erasable reports whether a file is a terminal that can erase a line.
func erasable(f *os.File) bool {
	name := os.Getenv("TERM")
	return isatty.IsTerminal(f.Fd()) && name != "dumb" && (name != "" || runtime.GOOS == "windows")
}

// animated reports whether a live line is shown.
func (r *reporter) animated() bool { return !r.Quiet && !r.JSON && r.terminal() }

// inLines reports whether a terminal is told in whole lines what a live line would show.
func (r *reporter) inLines() bool { return !r.Quiet && !r.JSON && r.plain != nil && r.plain() }

// live shows a line in place of the last live line, below all other lines, and reports
// whether it could. An empty line ends that.
func (r *reporter) live(line string) bool {
	if line != "" && !r.animated() {
		return false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
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

// draw erases the live line, and writes lines and a new live line. In the background it neither erases the
// last line, which belongs to the shell, nor writes a live line below others.
func (r *reporter) draw(lines, live string) {
	switch {
	case r.shown != "" && r.terminal():
		lines = erase + lines
	case lines != "":
		live = ""
	}
	if r.shown = live; lines+live != "" {
		fmt.Fprint(r.stderr, lines+live)
	}
}

// erase erases the line, and all below: a terminal that becomes narrower wraps the live line, so that the
// cursor stays at its beginning. It begins one column to the right: in the corner of
// the screen tmux takes it for a clear, and keeps the erased text.
const erase = "\r \x1b[J\r"
