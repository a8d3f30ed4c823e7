package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"slices"
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

// terminal is the kind of file that stderr is.
type terminal int

const (
	noTerminal      terminal = iota // a file or a pipe, or a terminal in whose background we are
	dumbTerminal                    // a terminal that can't erase a line
	erasingTerminal                 // any other terminal
)

// stderrTerminal returns which terminal stderr is now.
func stderrTerminal() terminal {
	switch {
	case !term.IsTerminal(int(os.Stderr.Fd())) || !procgroup.Foreground():
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
			r.Say("a request failed, and is repeated for at most %s: %s", atMost(e.Left), r.cause(e.Err))
		}
	case replock.EventReaped:
		for _, h := range e.Holders[:min(len(e.Holders), maxListed)] {
			r.Say("removed a stale lock: %s", r.named(h))
		}
		if more := len(e.Holders) - maxListed; more > 0 {
			r.Say("removed %d more stale locks", more)
		}
	case replock.EventRefreshFailed:
		cause := r.cause(e.Err)
		if errors.Is(e.Err, refresh.ErrTimeout) { // which names no server
			where := r.place().Where()
			if also.Known(e.Key) {
				where = e.Key
			}
			cause = where + ": " + cause
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
		if r.Verb {
			r.Say("%s: %s lock %s, key %s", e.Kind, e.Mode, e.ID, e.Key)
		}
	}
}

// cause describes an error. With --verbose it has the keys.
func (r *reporter) cause(err error) string {
	if r.Verb {
		return text.Error(err)
	}
	return session.Words(err, "")
}

// named describes a lock. With --verbose it names the keys.
func (r *reporter) named(i replock.Info) string {
	if r.Verb {
		return i.String()
	}
	return holder(i, 0)
}

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
	return term.IsTerminal(int(f.Fd())) && name != "dumb" && (name != "" || runtime.GOOS == "windows")
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

// draw erases the live line, writes lines, and draws a new live line. In the background it neither erases nor
// draws a live line, because the last line on the terminal might be the shell's.
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

// patience is how long a wait can last without a line in a pipe or a file. Tests replace it: they print in pipes, and
// their machine can be slow.
var patience = 5 * time.Second

// waiting is the display of a wait, which begins after a second: on a terminal a live line, or whole lines if the
// terminal can't erase one. Elsewhere it is a line when the holders change, when work on many stale locks begins,
// or when patience is over without an answer.
type waiting struct {
	mu          sync.Mutex
	what        string        // the text of BeginWait
	began       time.Duration // when BeginWait was called
	last        replock.Event // since BeginWait; its kind is "" if there was none
	lastAt      time.Duration // when last came
	interrupted bool          // by a signal since BeginWait
	drawn       bool          // the live line is shown
	said        []string      // the states that were shown in whole lines
	piped       bool          // stderr was no terminal when the wait began
	stop        chan struct{} // ends the goroutine that shows the wait; nil while there is none
}

func (r *reporter) now() time.Duration {
	if r.elapsed == nil {
		return clock.System{}.Elapsed()
	}
	return r.elapsed()
}

// BeginWait begins a wait that EndWait ends. The seconds are shown before ": " in what, or at its
// end.
func (r *reporter) BeginWait(what string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.begin(what)
}

func (r *reporter) begin(what string) {
	r.what, r.began, r.last, r.interrupted = what, r.now(), replock.Event{}, false
	switch {
	case r.stop == nil:
		if r.piped = r.showsOn(noTerminal); r.piped || r.showsOn(erasingTerminal) || r.showsOn(dumbTerminal) {
			r.start(false)
		}
	case r.drawn || len(r.said) > 0:
		r.show()
	}
}

// step begins a step of long work, and shows it at once.
func (r *reporter) step(what string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.begin(what)
	if !r.drawn && r.showsOn(erasingTerminal) {
		r.show()
	}
}

// Interrupted shows that a signal has ended the wait for a lock. Later events of the lock aren't shown.
func (r *reporter) Interrupted() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.stop != nil {
		r.begin("interrupted: deleting the lock that might have been written")
		r.interrupted = true
	}
}

// Event shows an event of a lock. It blocks while the terminal is stopped (Ctrl-S).
func (r *reporter) Event(e replock.Event) {
	switch e.Kind {
	case replock.EventWaiting, replock.EventReading, replock.EventReaping, replock.EventWatching:
		r.mu.Lock()
		defer r.mu.Unlock()
		if !r.interrupted {
			r.waitEvent(e)
		}
		return
	case replock.EventRetrying: // also while the command runs, which then uses the terminal
		r.mu.Lock()
		if r.stop != nil && !r.interrupted {
			r.last, r.lastAt = e, r.now()
		}
		r.mu.Unlock()
	}
	r.printEvent(e)
}

// retrying shows that a request failed, and is repeated for the time that is left.
func (r *reporter) retrying(err error, left time.Duration) {
	r.Event(replock.Event{Kind: replock.EventRetrying, Err: err, Left: left})
}

// waitEvent shows an event of a wait, or of work on many locks.
func (r *reporter) waitEvent(e replock.Event) {
	was := r.last
	r.last, r.lastAt = e, r.now()
	switch {
	case r.stop != nil && !r.piped && !r.showsOn(dumbTerminal):
	case r.showsOn(erasingTerminal):
		r.start(true)
	case e.Kind == replock.EventWatching:
		r.printEvent(e)
	case e.Kind == replock.EventWaiting && !slices.Equal(held(e.Holders), held(was.Holders)):
		what := fmt.Sprintf("the %s lock", e.Mode)
		if also.Known(e.Key) {
			what = text.Escape(e.Key)
		}
		r.Say("waiting for %s, %s %s", what, by(e.Holders), holders(e.Holders, 0, 0))
	case e.Kind != replock.EventWaiting && e.Kind != was.Kind:
		r.Say("%s", work(e))
	}
}

// by returns the words before the holders in a message about a wait.
func by(holders []replock.Info) string {
	if onlyWaiters(holders) {
		return "reserved for"
	}
	return "held by"
}

// work describes an event of work on many locks.
func work(e replock.Event) string {
	what := "reading many locks, which might be stale"
	if e.Kind == replock.EventReaping {
		what = fmt.Sprintf("removing %d stale locks", e.Total)
	}
	if e.Done > 0 {
		what += fmt.Sprintf(": %d done", e.Done)
	}
	return what
}

// held identifies each holder, in a sorted order.
func held(holders []replock.Info) (names []string) {
	for _, h := range holders {
		names = append(names, h.ID+h.Key()+h.Holder)
	}
	slices.Sort(names)
	return names
}

// start starts a goroutine that shows the wait each second, beginning now or in a second.
func (r *reporter) start(now bool) {
	stop := make(chan struct{})
	r.stop = stop
	go func() {
		ticker := time.NewTicker(time.Second)
		defer ticker.Stop()
		for ; ; now = true {
			if now {
				r.mu.Lock()
				if r.stop == stop {
					r.show()
				}
				r.mu.Unlock()
			}
			select {
			case <-stop:
				return
			case <-ticker.C:
			}
		}
	}()
}

// show draws the live line, or prints the state in a whole line if it wasn't printed before.
func (r *reporter) show() {
	now := r.now()
	if r.piped && now-r.began < patience {
		return
	}
	if !r.piped && !r.showsOn(dumbTerminal) {
		r.drawn = r.live(r.liveLine(now))
		return
	}
	state, line := r.what, r.what
	switch {
	case r.isRetrying(now - r.lastAt):
		state, line = session.Words(r.last.Err, ""), r.liveLine(now)
		if r.Verb { // printEvent has printed the event
			return
		}
	case r.last.Kind != "" && r.last.Kind != replock.EventRetrying: // waitEvent has printed it
		return
	}
	if !slices.Contains(r.said, state) {
		r.said = append(r.said, state)
		r.Say("%s", line)
	}
}

// isRetrying reports whether the last event is a failed request that can still be repeated. since is the time
// since the failure.
func (r *reporter) isRetrying(since time.Duration) bool {
	return r.last.Kind == replock.EventRetrying && since < r.last.Left
}

// liveLine returns the live line. Its changing part comes first, so that a terminal of 60 columns shows it.
func (r *reporter) liveLine(now time.Duration) string {
	e, since := r.last, now-r.lastAt
	switch {
	case e.Kind == replock.EventWaiting:
		return fmt.Sprintf("waiting %s: %s %s", text.Duration(e.Waited+since), by(e.Holders), holders(e.Holders, 0, since))
	case e.Kind == replock.EventWatching:
		return fmt.Sprintf("watching %s whether it is stale: %s", text.Duration(e.Waited+since), holders(e.Holders, 0, since))
	case e.Kind == replock.EventReading || e.Kind == replock.EventReaping:
		return work(e)
	case r.isRetrying(since):
		return fmt.Sprintf("retrying for %s at most: %s", atMost(e.Left-since), session.Words(e.Err, ""))
	default:
		return lasting(r.what, now-r.began)
	}
}

// lasting adds a duration to the description of some work, before ": " or at the end.
func lasting(what string, d time.Duration) string {
	if d < time.Second {
		return what
	}
	what, of, found := strings.Cut(what, ": ")
	if what += ", " + text.Duration(d); found {
		what += ": " + of
	}
	return what
}

// atMost formats an upper bound, rounded up to a second.
func atMost(d time.Duration) string {
	return text.Duration((d + time.Second - 1).Truncate(time.Second))
}

// EndWait ends the wait, and erases the live line.
func (r *reporter) EndWait() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.stop != nil {
		close(r.stop)
		r.stop = nil
	}
	r.what, r.last, r.interrupted, r.drawn, r.said = "", replock.Event{}, false, false, nil
	r.live("")
}
