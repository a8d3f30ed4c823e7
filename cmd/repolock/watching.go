package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"time"

	"golang.org/x/term"

	"github.com/repolock/repolock/internal/child"
	"github.com/repolock/repolock/internal/clock"
	"github.com/repolock/repolock/internal/plain"
	"github.com/repolock/repolock/replock"
)

// watching is status --watch, which a signal ends.
type watching struct {
	r     *reporter
	l     *replock.Locker
	lines int    // that are on the terminal
	width int    // of the terminal then
	last  string // what was shown last, where there is none
}

func (w *watching) run(interval time.Duration) error {
	show := w.print
	continued := make(chan os.Signal, 1)
	if erasable(os.Stdout) && !w.r.JSON {
		show = w.redraw
		signal.Notify(continued, sigcont)
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
		case <-continued: // and the shell has written below
			w.lines = 0
		}
	}
}

// redraw shows the locks in place of what was shown before. It doesn't in the background,
// where the terminal is the shell's.
func (w *watching) redraw(infos []replock.Info, failed error) error {
	if !child.Foreground() {
		w.lines = 0
		return nil
	}
	var b bytes.Buffer
	fmt.Fprintf(&b, "%s  %s\n", stamp(clock.System{}.Now()), replock.Printable(redact(w.r.Repo)))
	if failed != nil {
		fmt.Fprintf(&b, "the store can't be read: %s\n", oneLine(failed))
	} else if err := showStatus(w.r, &b, infos); err != nil {
		return err
	}
	lines := strings.Split(strings.TrimSuffix(b.String(), "\n"), "\n")
	text := ""
	if w.lines > 0 {
		text = fmt.Sprintf("\x1b[%dA", w.lines) + erase
	}
	if width, height, err := term.GetSize(int(os.Stdout.Fd())); err == nil && width > 0 && height > 1 {
		lines = crop(lines, width, height-1)
		if width < w.width && w.lines > 0 { // who knows in how many lines what is shown was wrapped
			text = "\x1b[H\x1b[2J"
		}
		w.width = width
	}
	w.lines = len(lines)
	_, err := fmt.Fprint(w.r.stdout, text+strings.Join(lines, "\n")+"\n")
	return err
}

// crop cuts what doesn't fit on a terminal: what is wrapped, or has scrolled away, can't
// be written over.
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

// print shows the locks if others hold them now than before.
func (w *watching) print(infos []replock.Info, failed error) error {
	if failed != nil {
		w.r.say("warning: the store can't be read: %s", oneLine(failed))
		return nil
	}
	names := ""
	for _, i := range infos {
		names += fmt.Sprintf("%s %s %s %s\n", i.ID, i.Keys, i.State, i.Verdict)
	}
	if names == "" {
		names = "none"
	}
	if names == w.last {
		return nil
	}
	w.last = names
	if w.r.JSON { // one a line
		text, err := plain.Marshal(newJSONStatus(w.r.global, infos))
		if err == nil {
			_, err = fmt.Fprintf(w.r.stdout, "%s\n", text)
		}
		return err
	}
	fmt.Fprintf(w.r.stdout, "%s  %s\n", stamp(clock.System{}.Now()), replock.Printable(redact(w.r.Repo)))
	return showStatus(w.r, w.r.stdout, infos)
}
