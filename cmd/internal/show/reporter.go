// Package show turns locks, events and errors into text or JSON, and keeps the live line. It gets values: it reads no
// command line, opens no store and holds no lock.
package show

import (
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"strings"
	"sync"
	"time"

	"golang.org/x/term"

	"github.com/repolock/repolock/cmd/internal/also"
	"github.com/repolock/repolock/cmd/internal/events"
	"github.com/repolock/repolock/cmd/internal/session"
	"github.com/repolock/repolock/internal/clock"
	"github.com/repolock/repolock/internal/procgroup"
	"github.com/repolock/repolock/internal/refresh"
	"github.com/repolock/repolock/internal/text"
	"github.com/repolock/repolock/replock"
)

// Reporter prints results on stdout, and everything else on stderr. The output of the wrapped command doesn't
// pass through it. It can be used concurrently.
type Reporter struct {
	Options
	Command        string // of repolock; "" if the command line names none
	Stdout, Stderr io.Writer
	Terminal       func() Terminal      // of stderr; nil: none
	Elapsed        func() time.Duration // the clock of waits; nil: the time since boot
	Patience       time.Duration        // how long a wait lasts without a line in a pipe or a file

	output   sync.Mutex // guards Stdout, Stderr and liveLine
	liveLine string     // on the terminal, or ""
	waits    waitDisplay
}

// Options are the values of the command line that decide what is shown.
type Options struct {
	JSON    bool          // results on stdout and an error on stderr are JSON, and nothing else is shown
	Quiet   bool          // only errors are shown
	Verbose bool          // every event of the lock is shown, and errors have all details
	Place   session.Place // of the repository's lock
	Flags   Flags         // for the commands in hints
}

// Terminal is the kind of file that stderr is.
type Terminal int

const (
	NoTerminal      Terminal = iota // a file or a pipe, or a terminal in whose background we are
	DumbTerminal                    // a terminal that can't erase a line
	ErasingTerminal                 // any other terminal
)

// StderrTerminal returns which terminal stderr is now.
func StderrTerminal() Terminal {
	switch {
	case !term.IsTerminal(int(os.Stderr.Fd())) || !procgroup.Foreground():
		return NoTerminal
	case CanErase(os.Stderr):
		return ErasingTerminal
	default:
		return DumbTerminal
	}
}

func (r *Reporter) on() Terminal {
	if r.Terminal == nil {
		return NoTerminal
	}
	return r.Terminal()
}

// ShowsOn reports whether stderr is such a terminal, and the progress of work is shown there.
func (r *Reporter) ShowsOn(t Terminal) bool { return !r.Quiet && !r.JSON && r.on() == t }

// Say prints a line on stderr, but not with --quiet, nor with --json, which prints one object there.
func (r *Reporter) Say(format string, args ...any) {
	if !r.Quiet && !r.JSON {
		r.line("", fmt.Sprintf(format, args...))
	}
}

// line prints a line on stderr that begins with its kind: "", "warning: ", "error: " or "hint: ".
func (r *Reporter) line(kind, message string) {
	r.output.Lock()
	defer r.output.Unlock()
	r.draw(Hanging("repolock: "+kind+text.Escape(message), TerminalWidth(os.Stderr))+"\n", r.liveLine)
}

// Fail prints an error and returns its exit code.
func (r *Reporter) Fail(err error) int {
	out := NewJSONError(r, err)
	if r.JSON {
		_ = r.PrintJSON(r.Stderr, out)
		return out.ExitCode
	}
	r.line("error: ", out.Words(r.Verbose))
	if out.Suggestion != "" {
		r.line("hint: ", out.Suggestion)
	}
	return out.ExitCode
}

// Skipped prints why a command was skipped, which is no failure.
func (r *Reporter) Skipped(err error) {
	out := NewJSONError(r, err)
	if r.JSON {
		out.ExitCode = 0
		_ = r.PrintJSON(r.Stderr, out)
		return
	}
	r.Say("skipped: %s", out.Words(r.Verbose))
}

// Alert prints a line on stderr even with --quiet.
func (r *Reporter) Alert(name, text string) {
	if r.JSON {
		_ = r.PrintJSON(r.Stderr, struct {
			Warning string    `json:"warning"`
			Message string    `json:"message"`
			Time    time.Time `json:"timestamp"`
		}{name, text, clock.System{}.Now().UTC()})
		return
	}
	r.line("warning: ", text)
}

// PrintJSON prints JSON in one line.
func (r *Reporter) PrintJSON(w io.Writer, v any) error {
	line, err := text.Marshal(v)
	if err != nil {
		panic(err) // strings and numbers always encode
	}
	r.output.Lock()
	defer r.output.Unlock()
	_, err = fmt.Fprintf(w, "%s\n", line)
	return err
}

func (r *Reporter) printEvent(e replock.Event) {
	switch e.Kind {
	case replock.EventWatching:
		for _, h := range e.Holders {
			r.Say("watching for up to %s whether a lock is stale: %s", text.Duration(h.TTL), r.LockText(h))
		}
	case replock.EventRetrying:
		if r.Verbose {
			r.Say("a request failed, and is repeated for at most %s: %s", atMost(e.Left), r.cause(e.Err))
		}
	case replock.EventReaped:
		for _, h := range e.Holders[:min(len(e.Holders), MaxListed)] {
			r.Say("removed a stale lock: %s", r.LockText(h))
		}
		if more := len(e.Holders) - MaxListed; more > 0 {
			r.Say("removed %d more stale locks", more)
		}
	case replock.EventRefreshFailed:
		cause := r.cause(e.Err)
		if errors.Is(e.Err, refresh.ErrTimeout) { // ErrTimeout names no server
			where := r.Place.Where()
			if also.Known(e.Key) {
				where = e.Key
			}
			cause = where + ": " + cause
		}
		if e.Failures == 0 {
			r.Say("refreshing the lock has failed for %s (it is lost %s): %s", text.Duration(refresh.MaxSilence), text.In(e.Left), cause)
			return
		}
		r.Say("refreshing the lock failed (%d of 3; it is lost %s): %s", e.Failures, text.In(e.Left), cause)
	case events.DirectoryCreated:
		r.Alert("directory_created", "created the directory of "+e.Key+", which was missing: check that the other program locks in this directory, too")
	case events.PasswordExposed:
		r.Alert("password_exposed", "all users of this machine can read the password file of "+e.Key+": run chmod 600 on it")
	case replock.EventReleaseFailed:
		what := "a lock is left to expire"
		if also.Known(e.Key) {
			what = "the lock could not be released, and might stay"
		}
		r.Say("warning: %s: %s", what, r.cause(e.Err))
	default:
		if r.Verbose {
			r.Say("%s: %s lock %s, key %s", e.Kind, e.Mode, e.ID, e.Key)
		}
	}
}

// cause describes an error. With --verbose it has the keys.
func (r *Reporter) cause(err error) string {
	if r.Verbose {
		return text.Error(err)
	}
	return session.Words(err, "")
}

// LockText describes a lock. With --verbose it names the keys.
func (r *Reporter) LockText(i replock.Info) string {
	if r.Verbose {
		return i.String()
	}
	return Holder(i, 0)
}

// Result prints a result on stdout: v with --json, or else words.
func (r *Reporter) Result(v any, words string) error {
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
	_, err := io.WriteString(r.Stdout, words)
	return err
}

// Print prints a text on stdout, even with --json.
func (r *Reporter) Print(text string) (int, error) {
	_, err := io.WriteString(r.Stdout, text)
	return 0, err
}

// MaxListed is the largest number of lines that Lines prints.
const MaxListed = 10

// Lines prints the first MaxListed lines, and the number of the remaining ones.
func Lines(b *strings.Builder, indent string, lines []string) {
	for i, line := range lines {
		if i == MaxListed {
			fmt.Fprintf(b, "%sand %d more\n", indent, len(lines)-i)
			break
		}
		fmt.Fprintf(b, "%s%s\n", indent, text.Escape(line))
	}
}

// CanErase reports whether a file is a terminal that can erase a line.
func CanErase(f *os.File) bool {
	name := os.Getenv("TERM")
	return term.IsTerminal(int(f.Fd())) && name != "dumb" && (name != "" || runtime.GOOS == "windows")
}

// Live draws the live line, which replaces the last one and stays below all other lines. An empty line erases
// it. Live reports whether the terminal can show it.
func (r *Reporter) Live(line string) bool {
	if line != "" && !r.ShowsOn(ErasingTerminal) {
		return false
	}
	r.output.Lock()
	defer r.output.Unlock()
	if line != "" {
		line = text.Escape(line)
		if width := TerminalWidth(os.Stderr); width > 1 { // a wrapped line isn't erased
			line = Cut(line, width-1)
		}
		line += "\r"
	}
	r.draw("", line)
	return true
}

// draw erases the live line, writes lines, and draws a new live line. In the background it neither erases nor
// draws a live line, because the last line on the terminal might be the shell's.
func (r *Reporter) draw(lines, live string) {
	switch {
	case r.liveLine != "" && r.on() == ErasingTerminal:
		lines = Erase + lines
	case lines != "":
		live = ""
	}
	if r.liveLine = live; lines+live != "" {
		fmt.Fprint(r.Stderr, lines+live)
	}
}

// Erase erases the live line and everything below, because a terminal that becomes narrower wraps the line. It
// erases from the second column: in the corner of the screen tmux takes the sequence for a clear of the screen,
// and keeps the erased text in its history.
const Erase = "\r \x1b[J\r"

// Retrying shows that a request failed and is sent again. left bounds the time of further tries.
func (r *Reporter) Retrying(err error, left time.Duration) {
	r.Event(replock.Event{Kind: replock.EventRetrying, Err: err, Left: left})
}
