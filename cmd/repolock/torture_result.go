package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/repolock/repolock/internal/clock"
	"github.com/repolock/repolock/internal/history"
	"github.com/repolock/repolock/internal/regular"
	"github.com/repolock/repolock/internal/torture"
)

// tortureLine says how torture goes on: in one line that is written over on a
// terminal, and else in a line every now and then.
type tortureLine struct {
	*reporter
	start time.Duration
	steps int
}

func newTortureLine(r *reporter) *tortureLine {
	return &tortureLine{reporter: r, start: clock.System{}.Elapsed()}
}

// sparse is how many seconds there are between two lines that stay.
const sparse = 15

func (l *tortureLine) elapsed() time.Duration { return clock.System{}.Elapsed() - l.start }

// step is called each second.
func (l *tortureLine) step(c torture.Counts) {
	text := fmt.Sprintf("%v: %d locks (%d shared, %d exclusive), %d held, %d lost, %d resumed, %d killed, %d stopped, %d writes, %d violations",
		l.elapsed().Round(time.Second), c.Acquisitions(), c.Shared, c.Exclusive, c.Held, c.Lost, c.Resumed, c.Killed, c.Stopped, c.Writes, c.Violations)
	if l.live(text) {
		return
	}
	if l.steps++; l.steps%sparse == 0 {
		l.say("%s", text)
	}
}

// tortureResult is the outcome of torture, in JSON. Fields are only ever added.
type tortureResult struct {
	Verdict      history.Result      `json:"verdict"`
	Why          string              `json:"why,omitempty"`
	Acquisitions int                 `json:"acquisitions"`
	Counts       torture.Counts      `json:"counts"`
	Late         int                 `json:"late"`
	Violations   []history.Violation `json:"violations"`
	Seconds      float64             `json:"seconds"`
	Seed         uint64              `json:"seed"`
	Prefix       string              `json:"prefix"`
	HTML         string              `json:"html,omitempty"`
	Log          string              `json:"log,omitempty"`
	Left         []string            `json:"left,omitempty"`
	LeftBecause  string              `json:"left_because,omitempty"`
}

func newTortureResult(r torture.Report) *tortureResult {
	t := &tortureResult{
		Verdict: r.Verdict.Result, Why: r.Verdict.Why, Acquisitions: r.Counts.Acquisitions(), Counts: r.Counts,
		Late: r.Verdict.Late, Violations: r.Verdict.Violations, Left: r.Left,
	}
	if t.Violations == nil {
		t.Violations = []history.Violation{}
	}
	if r.LeftBecause != nil {
		t.LeftBecause = oneLine(r.LeftBecause)
	}
	return t
}

// evidence is a file that is kept if somebody asked for it, or if it is needed.
type evidence struct {
	*os.File
	asked bool
}

// newEvidence makes the file that was asked for, or one of that kind in the temporary
// directory.
func newEvidence(name, kind string) (evidence, error) {
	if name != "" {
		f, err := regular.Create(name)
		return evidence{f, true}, err
	}
	f, err := os.CreateTemp("", "repolock-torture-*."+kind)
	return evidence{f, false}, err
}

// close gives the file's name if it is kept, or needed.
func (e evidence) close(needed bool) (name string, err error) {
	err = e.Close()
	if !e.asked && !needed {
		return "", errors.Join(err, os.Remove(e.Name()))
	}
	return e.Name(), err
}

// keep keeps the log, and draws the picture, if somebody has asked for it or unless
// all is well.
func (t *tortureResult) keep(html string, log evidence, verdict history.Verdict) error {
	needed := t.Verdict != history.NotFound && t.Acquisitions > 0
	var err error
	if t.Log, err = log.close(needed); err != nil {
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
	if t.HTML, err = picture.close(true); err != nil || drawn != nil {
		return fmt.Errorf("the picture can't be drawn: %w", errors.Join(drawn, err))
	}
	return nil
}

// worthPrinting: where nobody got the lock there is only an error to be told.
func (t *tortureResult) worthPrinting() bool {
	return t.Acquisitions > 0 || len(t.Left) > 0 || t.LeftBecause != ""
}

func (t *tortureResult) print(r *reporter) error {
	if r.JSON {
		return r.result(t)
	}
	var b strings.Builder
	table := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	c := t.Counts
	for _, row := range []struct {
		what string
		n    int
	}{
		{"shared locks", c.Shared}, {"exclusive locks", c.Exclusive}, {"refused, since held", c.Held}, {"not taken for other reasons", c.Failed},
		{"lost", c.Lost}, {"resumed", c.Resumed}, {"processes killed", c.Killed}, {"stopped and continued", c.Stopped}, {"terminated", c.Terminated},
		{"writes", c.Writes}, {"requests without an answer", c.Unanswered}, {"changes that arrived late", t.Late},
	} {
		fmt.Fprintf(table, "%s\t%d\n", row.what, row.n)
	}
	table.Flush()
	fmt.Fprintln(&b)
	t.printViolations(&b)
	for _, kept := range []struct{ what, name string }{{"picture", t.HTML}, {"log", t.Log}} {
		if kept.name != "" {
			fmt.Fprintf(&b, "%s: %s\n", kept.what, escape(kept.name))
		}
	}
	if t.LeftBecause != "" || len(t.Left) > 0 {
		fmt.Fprintf(&b, "%d objects are left below %s, or more; remove them by hand: %s\n", len(t.Left), t.Prefix, cmp.Or(t.LeftBecause, "they came back"))
	}
	fmt.Fprintln(&b, t.says())
	_, err := io.WriteString(r.stdout, b.String())
	return err
}

// maxViolations is how many are told; one would do.
const maxViolations = 10

func (t *tortureResult) printViolations(b *strings.Builder) {
	for i, v := range t.Violations {
		if i == maxViolations {
			fmt.Fprintf(b, "and %d more\n", len(t.Violations)-i)
			break
		}
		fmt.Fprintf(b, "%s: %s\n", strings.ReplaceAll(v.Name, "_", " "), escape(v.Text))
	}
}

// says is the verdict in words.
func (t *tortureResult) says() string {
	switch t.Verdict {
	case history.NotFound:
		return fmt.Sprintf("no violation found in %d acquisitions", t.Acquisitions)
	case history.Violated:
		return fmt.Sprintf("VIOLATION: locks don't hold here; %d violations in %d acquisitions", len(t.Violations), t.Acquisitions)
	default:
		return "whether there was a violation isn't known: " + escape(t.Why)
	}
}

// exit gives the exit code: a violation outranks what else went wrong.
func (t *tortureResult) exit(ctx context.Context, failed error) (int, error) {
	var interrupted signalled
	switch {
	case t.Verdict == history.Violated:
		return exitUnfit, nil
	case errors.As(context.Cause(ctx), &interrupted):
		return 0, interrupted
	case failed != nil:
		return 0, failed
	case t.Verdict != history.NotFound:
		return 0, fmt.Errorf("%w: %s", torture.ErrUnjudged, t.Why)
	default:
		return 0, nil
	}
}
