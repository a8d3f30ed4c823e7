package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"time"

	"golang.org/x/term"

	"github.com/repolock/repolock/internal/clock"
	"github.com/repolock/repolock/internal/procgroup"
	"github.com/repolock/repolock/internal/session"
	"github.com/repolock/repolock/internal/text"
	"github.com/repolock/repolock/replock"
)

// statusWatch is status --watch. A signal ends it.
type statusWatch struct {
	r     *reporter
	l     *replock.Locker
	lines int    // on the terminal now
	width int    // of the terminal when they were written
	last  string // what print showed last
}

func (w *statusWatch) run(interval time.Duration) error {
	show := w.print
	continued := make(chan os.Signal, 1)
	if erasable(os.Stdout) && !w.r.JSON {
		show = w.redraw
		signal.Notify(continued, session.Continue)
	}
	for first := true; ; first = false {
		infos, err := w.l.Status(context.Background())
		if err != nil && first {
			return err
		}
		if err := show(infos, err); err != nil {
			return err
		}
		select {
		case <-time.After(interval):
		case <-continued: // the shell has written below
			w.lines = 0
		}
	}
}

// redraw shows the locks in place of those that it showed before. In the background it
// shows nothing: there the terminal is the shell's.
func (w *statusWatch) redraw(infos []replock.Info, failed error) error {
	if !procgroup.Foreground() {
		w.lines = 0
		return nil
	}
	shown := w.heading()
	if failed != nil {
		shown += fmt.Sprintf("the store can't be read: %s\n", text.Error(failed))
	} else {
		shown += table(infos)
	}
	lines := strings.Split(strings.TrimSuffix(shown, "\n"), "\n")
	begin := ""
	if w.lines > 0 {
		begin = fmt.Sprintf("\x1b[%dA", w.lines) + erase
	}
	if width, height, err := term.GetSize(int(os.Stdout.Fd())); err == nil && width > 0 && height > 1 {
		lines = crop(lines, width, height-1)
		if width < w.width && w.lines > 0 { // the terminal has wrapped the old lines
			begin = "\x1b[H\x1b[2J"
		}
		w.width = width
	}
	w.lines = len(lines)
	_, err := fmt.Fprint(w.r.stdout, begin+strings.Join(lines, "\n")+"\n")
	return err
}

// crop cuts lines that don't fit on a terminal: a line that is wrapped, or has scrolled
// away, can't be overwritten.
func crop(lines []string, width, height int) []string {
	if len(lines) > height {
		more := len(lines) - height + 1
		lines = append(lines[:height-1:height-1], fmt.Sprintf("… and %d lines more", more))
	}
	for i, line := range lines {
		lines[i] = cut(line, width)
	}
	return lines
}

func (w *statusWatch) print(infos []replock.Info, failed error) error {
	if failed != nil {
		w.r.Say("warning: the store can't be read: %s", text.Error(failed))
		return nil
	}
	names := "locks\n" // unlike last before the first time
	for _, i := range infos {
		names += fmt.Sprintf("%s %s %s %s\n", i.ID, i.Keys, i.State, i.Verdict)
	}
	if names == w.last {
		return nil
	}
	w.last = names
	if w.r.JSON { // one object a line
		raw, err := text.Marshal(newJSONStatus(w.r.global, infos))
		if err == nil {
			_, err = fmt.Fprintf(w.r.stdout, "%s\n", raw)
		}
		return err
	}
	_, err := fmt.Fprint(w.r.stdout, w.heading()+table(infos))
	return err
}

func (w *statusWatch) heading() string {
	return fmt.Sprintf("%s  %s\n", stamp(clock.System{}.Now()), text.Brief(session.Redact(w.r.Repo)))
}
