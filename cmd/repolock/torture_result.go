package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/repolock/repolock/internal/fault"
	"github.com/repolock/repolock/internal/judge"
	"github.com/repolock/repolock/internal/regular"
	"github.com/repolock/repolock/internal/text"
	"github.com/repolock/repolock/internal/torture"
)

// tortureResult is the result of torture in JSON. Fields are only ever added.
type tortureResult struct {
	Verdict      judge.Result `json:"verdict"`
	Why          string       `json:"why,omitempty"`
	Acquisitions int          `json:"acquisitions"`
	// Counts and Late are missing for another program's lock.
	Counts *torture.Counts `json:"counts,omitempty"`
	Late   *int            `json:"late,omitempty"`
	// Faults, LeftOut, Pictures and EndedBecause are missing for a lock of repolock.
	Faults       []*torture.FaultReport `json:"faults,omitempty"`
	LeftOut      []torture.Omitted      `json:"left_out,omitempty"`
	Violations   []judge.Violation      `json:"violations"`
	Pictures     []string               `json:"pictures,omitempty"`
	Seconds      float64                `json:"seconds"`
	Seed         uint64                 `json:"seed"`
	EndedBecause string                 `json:"ended_because,omitempty"`
	// Prefix, Left and LeftBecause are missing for another program's lock.
	Prefix      string   `json:"prefix,omitempty"`
	HTML        string   `json:"html,omitempty"`
	Log         string   `json:"log,omitempty"`
	Left        []string `json:"left,omitempty"`
	LeftBecause string   `json:"left_because,omitempty"`

	verdict judge.Verdict
}

func newResult(v judge.Verdict, acquisitions int) *tortureResult {
	return &tortureResult{verdict: v, Verdict: v.Result, Why: v.Why, Acquisitions: acquisitions, Violations: append([]judge.Violation{}, v.Violations...)}
}

func newTortureResult(r torture.Report, prefix string) *tortureResult {
	t := newResult(r.Verdict, r.Counts.Acquisitions())
	t.Counts, t.Late, t.Prefix, t.Left = &r.Counts, &r.Verdict.Late, prefix, r.Left
	if r.LeftBecause != nil {
		t.LeftBecause = text.Error(r.LeftBecause)
	}
	return t
}

func newTrialResult(r torture.TrialReport) *tortureResult {
	t := newResult(r.Verdict, r.Acquisitions())
	t.Faults, t.LeftOut, t.Pictures = r.Faults, r.Left, r.Pictures
	return t
}

// evidence is a file that is kept if the user asked for it, or if the verdict needs evidence.
type evidence struct {
	*os.File
	asked bool
}

// newEvidence creates the file of this name, or without a name a file in the temporary directory.
func newEvidence(name, kind string) (evidence, error) {
	if name != "" {
		f, err := regular.Create(name)
		return evidence{f, true}, err
	}
	f, err := os.CreateTemp("", "repolock-torture-*."+kind)
	return evidence{f, false}, err
}

// close closes the file, and deletes it if the user didn't ask for it and it isn't needed. It returns the name of a
// file that it keeps.
func (e evidence) close(needed bool) (name string, err error) {
	err = e.Close()
	if !e.asked && !needed {
		return "", fault.Join(err, os.Remove(e.Name()))
	}
	return e.Name(), err
}

// keep keeps the log and draws the picture if the user asked for them, or if the verdict needs evidence.
func (t *tortureResult) keep(html string, log evidence) error {
	needed := t.Verdict != judge.NotFound && t.Acquisitions > 0
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
	drawn := t.verdict.Picture(picture)
	if t.HTML, err = picture.close(true); err != nil || drawn != nil {
		return fmt.Errorf("the picture can't be drawn: %w", fault.Join(drawn, err))
	}
	return nil
}

func (t *tortureResult) print(r *reporter) error {
	var b strings.Builder
	fmt.Fprintln(&b, aligned(t.table()...))
	for _, o := range t.LeftOut {
		fmt.Fprintf(&b, "%s was left out: %s\n", o.Fault, text.Escape(o.Why))
	}
	for _, p := range t.Pictures {
		for line := range strings.Lines(p) {
			fmt.Fprintln(&b, text.Escape(strings.TrimSuffix(line, "\n")))
		}
		fmt.Fprintln(&b)
	}
	if len(t.Pictures) > 0 {
		fmt.Fprintf(&b, "%s\n\n", torture.Legend)
	}
	if t.Counts != nil {
		var violations []string
		for _, v := range t.Violations {
			violations = append(violations, strings.ReplaceAll(v.Name, "_", " ")+": "+v.Text)
		}
		list(&b, "", violations)
	}
	for _, file := range [][2]string{{"picture", t.HTML}, {"log", t.Log}} {
		if file[1] != "" {
			fmt.Fprintf(&b, "%s: %s\n", file[0], text.Escape(file[1]))
		}
	}
	t.printLeft(&b)
	if t.Verdict == judge.Violated && t.EndedBecause != "" {
		fmt.Fprintf(&b, "it ended early: %s\n", t.EndedBecause)
	}
	fmt.Fprintln(&b, t.says())
	return r.result(t, b.String())
}

// table returns the rows for aligned: counts, or for another program's lock a row for each fault.
func (t *tortureResult) table() []string {
	if t.Counts == nil {
		rows := []string{"FAULT\tROUNDS\tLOCKS\tREFUSED\tTWO IN\tWENT ON\tNEVER FREED\tFREE AFTER"}
		for _, f := range t.Faults {
			rows = append(rows, fmt.Sprintf("%s\t%d\t%d\t%d\t%d\t%s\t%d\t%s", f.Fault, f.Rounds, f.Locks, f.Refused, f.TwoIn, inSeconds(f.WentOn), f.Blocked, inSeconds(f.FreeAfter)))
		}
		return rows
	}
	c := t.Counts
	return []string{
		fmt.Sprint("shared locks\t", c.Shared), fmt.Sprint("exclusive locks\t", c.Exclusive), fmt.Sprint("refused, since held\t", c.Held),
		fmt.Sprint("not taken for other reasons\t", c.Failed), fmt.Sprint("lost\t", c.Lost), fmt.Sprint("resumed\t", c.Resumed),
		fmt.Sprint("processes killed\t", c.Killed), fmt.Sprint("stopped and continued\t", c.Stopped), fmt.Sprint("terminated\t", c.Terminated),
		fmt.Sprint("writes\t", c.Writes), fmt.Sprint("requests without an answer\t", c.Unanswered), fmt.Sprint("changes that arrived late\t", *t.Late),
	}
}

func inSeconds(s float64) string {
	if s == 0 {
		return "-"
	}
	return time.Duration(s * float64(time.Second)).Round(time.Millisecond).String()
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

func (t *tortureResult) says() string {
	rounds, two, blocked := 0, 0, 0
	for _, f := range t.Faults {
		rounds, two, blocked = rounds+f.Rounds, two+f.TwoIn, blocked+f.Blocked
	}
	ours := t.Counts != nil
	switch {
	case t.Verdict == judge.NotFound && ours:
		return fmt.Sprintf("no violation found in %d acquisitions", t.Acquisitions)
	case t.Verdict == judge.NotFound:
		return fmt.Sprintf("no violation found in %d rounds with %d acquisitions", rounds, t.Acquisitions)
	case t.Verdict == judge.Violated && ours:
		return fmt.Sprintf("VIOLATION: locks don't hold here; %d violations in %d acquisitions", len(t.Violations), t.Acquisitions)
	case t.Verdict == judge.Violated:
		return fmt.Sprintf("VIOLATION: two holders at once in %d of %d rounds; in %d rounds the lock of an ended holder was never freed", two, rounds, blocked)
	default:
		return "whether there was a violation isn't known: " + text.Escape(t.Why)
	}
}

// exit returns the exit code. That of a violation wins over all errors.
func (t *tortureResult) exit(ctx context.Context, failed error) (int, error) {
	switch {
	case t.Verdict == judge.Violated:
		return fault.ExitUnfit, nil
	case errors.Is(context.Cause(ctx), fault.Interrupted):
		return 0, context.Cause(ctx)
	case failed != nil:
		return 0, failed
	case t.Verdict != judge.NotFound:
		return 0, fmt.Errorf("%w: %s", torture.ErrUnjudged, t.Why)
	default:
		return 0, nil
	}
}
