package main

import (
	"fmt"
	"io"
	"os"
	"text/tabwriter"
	"time"

	"github.com/repolock/repolock/internal/audit"
	"github.com/repolock/repolock/internal/regular"
	"github.com/repolock/repolock/replock"
)

type historyCmd struct {
	File string `arg:"" predictor:"file" help:"The file that --audit has written; - is the standard input."`
	SVG  string `predictor:"file" name:"svg" placeholder:"FILE" help:"Draw it as a timeline, too."`
}

func (historyCmd) Help() string {
	return `Who held what and when, who waited and who was refused, and what was removed, as an audit log tells it.`
}

func (c historyCmd) run(r *reporter, _ global) (int, error) {
	in := os.Stdin
	if c.File != "-" { // which may be a pipe, as in history <(zcat log.gz): a signal ends the wait for it
		var err error
		if in, err = os.Open(c.File); err != nil {
			return 0, usageError{err}
		}
		defer in.Close()
	}
	records, skipped, err := audit.Read(in)
	if err != nil {
		return 0, usageError{fmt.Errorf("%s: %w", c.File, err)}
	}
	if skipped > 0 {
		r.say("warning: %d lines of %s were skipped: they are too long, or not understood", skipped, c.File)
	}
	h := audit.NewHistory(records)
	if c.SVG != "" {
		if err := writeFile(c.SVG, h.WriteSVG); err != nil {
			return 0, usageError{err}
		}
	}
	if r.JSON {
		return 0, r.result(newJSONHistory(h))
	}
	return 0, printHistory(r.stdout, h)
}

// writeFile writes a file whole, or says why not.
func writeFile(name string, write func(io.Writer) error) error {
	f, err := regular.Create(name)
	if err != nil {
		return err
	}
	if err := write(f); err != nil {
		f.Close()
		return err
	}
	return f.Close()
}

func printHistory(w io.Writer, h audit.History) error {
	if len(h.Spans)+len(h.Removals) == 0 {
		_, err := fmt.Fprintln(w, "no locks")
		return err
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "ASKED\tWAITED\tHELD\tMODE\tOPERATION\tWHO\tOUTCOME")
	for _, s := range h.Spans {
		held, outcome := "-", s.Outcome
		if d, ok := s.HeldFor(); ok {
			held = d.Round(time.Millisecond).String()
		} else if !s.Held.IsZero() {
			held = "?"
		}
		if outcome == "" {
			outcome = "no end in the log: held still, or its holder was killed"
		}
		if d := s.StoppedFor(); d > 0 {
			outcome += fmt.Sprintf("; stopped for %v", d.Round(time.Millisecond))
		}
		fmt.Fprintf(t, "%s\t%v\t%s\t%s\t%s\t%s\t%s\n", since(s.Asked), s.Waited().Round(time.Millisecond), held, dash(s.Mode), dash(s.Operation),
			dash(s.Who), replock.Printable(outcome))
	}
	if err := t.Flush(); err != nil {
		return err
	}
	for _, m := range h.Removals {
		if _, err := fmt.Fprintf(w, "%s  %s %s %s\n", since(m.At), dash(m.Who), m.What, dash(m.Of)); err != nil {
			return err
		}
	}
	return nil
}

// jsonSpan is a line of history in JSON. Fields are only ever added.
type jsonSpan struct {
	LockName      string     `json:"lock_name"`
	Mode          string     `json:"mode"`
	Operation     string     `json:"operation"`
	Who           string     `json:"who"`
	AskedAt       time.Time  `json:"asked_at"`
	AcquiredAt    *time.Time `json:"acquired_at,omitempty"`
	EndedAt       *time.Time `json:"ended_at,omitempty"`
	WaitedSeconds float64    `json:"waited_seconds"`
	HeldSeconds   *float64   `json:"held_seconds,omitempty"`
	StoppedFor    float64    `json:"stopped_seconds,omitempty"`
	Outcome       string     `json:"outcome,omitempty"`
	Lost          bool       `json:"lost"`
}

type jsonRemoval struct {
	At   time.Time `json:"at"`
	Who  string    `json:"who"`
	What string    `json:"what"`
	Of   string    `json:"of"`
}

type jsonHistory struct {
	Locks    []jsonSpan    `json:"locks"`
	Removals []jsonRemoval `json:"removals"`
}

func newJSONHistory(h audit.History) jsonHistory {
	out := jsonHistory{[]jsonSpan{}, []jsonRemoval{}}
	for _, s := range h.Spans {
		j := jsonSpan{LockName: s.LockName, Mode: s.Mode, Operation: s.Operation, Who: s.Who, AskedAt: s.Asked, WaitedSeconds: seconds(s.Waited()), Outcome: s.Outcome, Lost: s.Lost, StoppedFor: seconds(s.StoppedFor())}
		if !s.Held.IsZero() {
			j.AcquiredAt = &s.Held
		}
		if !s.End.IsZero() {
			j.EndedAt = &s.End
		}
		if d, ok := s.HeldFor(); ok {
			held := seconds(d)
			j.HeldSeconds = &held
		}
		out.Locks = append(out.Locks, j)
	}
	for _, m := range h.Removals {
		out.Removals = append(out.Removals, jsonRemoval{m.At, m.Who, m.What, m.Of})
	}
	return out
}
