package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/repolock/repolock/internal/clock"
	"github.com/repolock/repolock/internal/fault"
	"github.com/repolock/repolock/internal/judge"
	"github.com/repolock/repolock/internal/regular"
	"github.com/repolock/repolock/internal/text"
	"github.com/repolock/repolock/internal/torture"
)

// tortureLine shows the progress of torture: in a live line on a terminal, elsewhere in a
// line now and then.
type tortureLine struct {
	*reporter
	start time.Duration
	steps int
}

// sparse is the number of seconds between progress lines when stderr is no terminal.
const sparse = 15

func (l *tortureLine) elapsed() time.Duration { return clock.System{}.Elapsed() - l.start }

// step is called each second.
func (l *tortureLine) step(c torture.Counts) {
	text := fmt.Sprintf("%v: %d locks (%d shared, %d exclusive), %d held, %d lost, %d resumed, %d killed, %d stopped, %d writes, %d violations",
		l.elapsed().Round(time.Second), c.Acquisitions(), c.Shared, c.Exclusive, c.Held, c.Lost, c.Resumed, c.Killed, c.Stopped, c.Writes, c.Violations)
	if l.live(text) {
		return
	}
	if l.steps++; l.steps%sparse == 0 || l.steps == 1 && l.inLines() {
		l.Say("%s", text)
	}
}

// tortureResult is the outcome of torture, in JSON. Fields are only ever added.
type tortureResult struct {
	Verdict      judge.Result      `json:"verdict"`
	Why          string            `json:"why,omitempty"`
	Acquisitions int               `json:"acquisitions"`
	Counts       torture.Counts    `json:"counts"`
	Late         int               `json:"late"`
	Violations   []judge.Violation `json:"violations"`
	Seconds      float64           `json:"seconds"`
	Seed         uint64            `json:"seed"`
	Prefix       string            `json:"prefix"`
	kept
	Left        []string `json:"left,omitempty"`
	LeftBecause string   `json:"left_because,omitempty"`
}

func newTortureResult(r torture.Report) *tortureResult {
	t := &tortureResult{
		Verdict: r.Verdict.Result, Why: r.Verdict.Why, Acquisitions: r.Counts.Acquisitions(), Counts: r.Counts,
		Late: r.Verdict.Late, Violations: r.Verdict.Violations, Left: r.Left,
	}
	if t.Violations == nil {
		t.Violations = []judge.Violation{}
	}
	if r.LeftBecause != nil {
		t.LeftBecause = text.Error(r.LeftBecause)
	}
	return t
}

// evidence is a file that is kept if the user wants it, or if it is needed.
type evidence struct {
	*os.File
	asked bool
}

// newEvidence creates the file that the user wants, or one in the temporary directory.
func newEvidence(name, kind string) (evidence, error) {
	if name != "" {
		f, err := regular.Create(name)
		return evidence{f, true}, err
	}
	f, err := os.CreateTemp("", "repolock-torture-*."+kind)
	return evidence{f, false}, err
}

// close closes the file, and returns its name unless it has deleted the file.
func (e evidence) close(needed bool) (name string, err error) {
	err = e.Close()
	if !e.asked && !needed {
		return "", fault.Join(err, os.Remove(e.Name()))
	}
	return e.Name(), err
}

// kept names the files with the evidence.
type kept struct {
	HTML string `json:"html,omitempty"`
	Log  string `json:"log,omitempty"`
}

// keep keeps the log and draws the picture if the user wants them, or if they are needed.
func (k *kept) keep(html string, log evidence, verdict judge.Verdict, needed bool) error {
	var err error
	if k.Log, err = log.close(needed); err != nil {
		return fmt.Errorf("the log can't be kept: %w", err)
	}
	if html == "" && !needed {
		return nil
	}
	picture, err := newEvidence(html, "html")
	if err != nil {
		return fmt.Errorf("the picture can't be drawn: %w", err)
	}
	drawn := verdict.Picture(picture)
	if k.HTML, err = picture.close(true); err != nil || drawn != nil {
		return fmt.Errorf("the picture can't be drawn: %w", fault.Join(drawn, err))
	}
	return nil
}

// print prints where they are.
func (k kept) print(b *strings.Builder) {
	for _, file := range []struct{ what, name string }{{"picture", k.HTML}, {"log", k.Log}} {
		if file.name != "" {
			fmt.Fprintf(b, "%s: %s\n", file.what, text.Escape(file.name))
		}
	}
}

func (t *tortureResult) print(r *reporter) error {
	var rows []string
	c := t.Counts
	for _, row := range []struct {
		what string
		n    int
	}{
		{"shared locks", c.Shared}, {"exclusive locks", c.Exclusive}, {"refused, since held", c.Held}, {"not taken for other reasons", c.Failed},
		{"lost", c.Lost}, {"resumed", c.Resumed}, {"processes killed", c.Killed}, {"stopped and continued", c.Stopped}, {"terminated", c.Terminated},
		{"writes", c.Writes}, {"requests without an answer", c.Unanswered}, {"changes that arrived late", t.Late},
	} {
		rows = append(rows, fmt.Sprintf("%s\t%d", row.what, row.n))
	}
	var b strings.Builder
	fmt.Fprintln(&b, aligned(rows...))
	var violations []string
	for _, v := range t.Violations {
		violations = append(violations, strings.ReplaceAll(v.Name, "_", " ")+": "+v.Text)
	}
	list(&b, "", violations)
	t.kept.print(&b)
	t.printLeft(&b)
	fmt.Fprintln(&b, t.says())
	return r.result(t, b.String())
}

func (t *tortureResult) printLeft(b *strings.Builder) {
	switch n := len(t.Left); {
	case n == 1:
		fmt.Fprintf(b, "an object is left below %s; remove it by hand: %s\n", t.Prefix, cmp.Or(t.LeftBecause, "it came back"))
	case n > 1:
		fmt.Fprintf(b, "%d objects are left below %s; remove them by hand: %s\n", n, t.Prefix, cmp.Or(t.LeftBecause, "they came back"))
	case t.LeftBecause != "":
		fmt.Fprintf(b, "objects might be left below %s, which could not be listed; remove them by hand: %s\n", t.Prefix, t.LeftBecause)
	}
}

// says returns the verdict in words.
func (t *tortureResult) says() string {
	switch t.Verdict {
	case judge.NotFound:
		return fmt.Sprintf("no violation found in %d acquisitions", t.Acquisitions)
	case judge.Violated:
		return fmt.Sprintf("VIOLATION: locks don't hold here; %d violations in %d acquisitions", len(t.Violations), t.Acquisitions)
	default:
		return "whether there was a violation isn't known: " + text.Escape(t.Why)
	}
}

func (t *tortureResult) exit(ctx context.Context, failed error) (int, error) {
	return tortureExit(ctx, t.Verdict, t.Why, failed)
}

// tortureExit returns the exit code: a violation outranks all errors.
func tortureExit(ctx context.Context, verdict judge.Result, why string, failed error) (int, error) {
	switch {
	case verdict == judge.Violated:
		return fault.ExitUnfit, nil
	case errors.Is(context.Cause(ctx), fault.Interrupted):
		return 0, context.Cause(ctx)
	case failed != nil:
		return 0, failed
	case verdict != judge.NotFound:
		return 0, fmt.Errorf("%w: %s", torture.ErrUnjudged, why)
	default:
		return 0, nil
	}
}
