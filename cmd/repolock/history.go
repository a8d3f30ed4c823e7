package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"
	"time"

	"github.com/repolock/repolock/cmd/internal/cli"
	"github.com/repolock/repolock/cmd/internal/show"
	"github.com/repolock/repolock/internal/audit"
	"github.com/repolock/repolock/internal/fault"
	"github.com/repolock/repolock/internal/regular"
	"github.com/repolock/repolock/internal/text"
)

type historyCmd struct {
	File string `arg:"" predictor:"file" help:"The file of --audit; - is the standard input."`
	SVG  string `predictor:"file" name:"svg" placeholder:"FILE" help:"Also draw a timeline into this file."`

	Since cli.Moment `placeholder:"TIME" help:"Only the locks that were held or waited for after this time: 36h or 7d ago, a day (2026-03-07), or a time as history prints it."`
	Until cli.Moment `placeholder:"TIME" help:"Only the locks that were asked for before this time."`
}

func (c historyCmd) run(r *show.Reporter, g global) (int, error) {
	if since, until := time.Time(c.Since), time.Time(c.Until); !until.IsZero() && since.After(until) {
		return 0, fault.New(fault.Usage, "--since is after --until")
	}
	if g.OnLine("repo") {
		return 0, fault.New(fault.Usage, "--repo: history reads a file of --audit, and no repository: leave out --repo")
	}
	in := os.Stdin
	if c.File != "-" { // it can be a pipe, as in history <(zcat log.gz), so it needn't be regular
		var err error
		in, err = os.Open(c.File)
		if errors.Is(err, fs.ErrPermission) {
			return 0, fault.Advise(fault.As(fault.ServerPermission, err), "check the modes of the file and of its directory")
		}
		if err != nil {
			return 0, fault.As(fault.Usage, err)
		}
		defer in.Close()
	}
	if err := c.checkSVG(in); err != nil {
		return 0, err
	}
	records, skipped, err := audit.Read(in)
	if err != nil {
		return 0, fault.New(fault.Usage, "%s: %w", c.File, err)
	}
	if skipped > 0 && len(records) == 0 {
		err := fault.New(fault.Usage, "%s isn't an audit log: none of its lines is an event", c.File)
		if strings.HasSuffix(c.File, ".gz") {
			return 0, fault.Advise(err, "unpack it: zcat "+spell([]string{c.File})+" | repolock history -")
		}
		return 0, err
	}
	if skipped > 0 {
		r.Say("warning: skipped %d lines of %s that are too long or aren't events", skipped, c.File)
	}
	h := audit.NewHistory(records).Between(time.Time(c.Since), time.Time(c.Until))
	if c.SVG != "" {
		timeline := h.Timeline()
		if err := writeFile(c.SVG, timeline.WriteSVG); err != nil {
			return 0, g.cantWrite("svg", c.SVG, err)
		}
		if timeline.Left > 0 {
			r.Say("%d older locks aren't drawn; draw them with --until %s", timeline.Left, timeline.Begin.UTC().Format(time.RFC3339))
		}
	}
	return 0, r.Result(h, historyTable(h, show.ColumnsOf(os.Stdout)))
}

// checkSVG refuses to draw into the audit log itself.
func (c historyCmd) checkSVG(log *os.File) error {
	if c.SVG == "" {
		return nil
	}
	from, err := log.Stat()
	to, missing := os.Stat(c.SVG)
	if err == nil && missing == nil && from.Mode().IsRegular() && os.SameFile(from, to) {
		return fault.New(fault.Usage, "--svg %s: is the audit log: name another file", c.SVG)
	}
	return nil
}

func writeFile(name string, write func(io.Writer) error) error {
	f, err := regular.Create(name)
	if err != nil {
		return err
	}
	return fault.Join(write(f), f.Close())
}

// limitsOfHistory limits columns, so that the table of a history fits 80 columns.
var limitsOfHistory = map[string]show.Column{
	"LOCK": {Least: 12}, "WAITED": {Drop: 2}, "MODE": {Drop: 1}, "OPERATION": {Least: 10}, "WHO": {Least: 12}, "OUTCOME": {Least: 12},
}

// historyTable shows a history as wide as a terminal, or COLUMNS. In a pipe or a file it cuts nothing.
func historyTable(h audit.History, width int) string {
	if len(h.Spans)+len(h.Removals) == 0 {
		return "no locks\n"
	}
	several := h.Several()
	rows := []string{"ASKED\tWAITED\tHELD\tMODE\tOPERATION\tWHO\tOUTCOME"}
	if several {
		rows[0] = "LOCK\t" + rows[0]
	}
	for _, s := range h.Spans {
		row := historyRow(s)
		if several {
			row = text.Or(s.Place, "-") + "\t" + row
		}
		rows = append(rows, row)
	}
	var b strings.Builder
	b.WriteString(show.Table(show.ColumnsOfRows(rows, limitsOfHistory), width))
	for _, m := range h.Removals {
		line := fmt.Sprintf("%s  %s %s %s", show.Timestamp(m.At), text.Or(m.Who, "-"), m.What, text.Or(m.Of, "-"))
		if several {
			line += " in " + text.Or(m.Place, "-")
		}
		b.WriteString(show.Folded(line+"\n", width))
	}
	return b.String()
}

func historyRow(s *audit.Span) string {
	held := "-"
	switch d, known := s.HeldFor(); {
	case s.Held.IsZero():
	case known:
		held = d.Round(time.Millisecond).String()
	case d > 0:
		held = ">" + d.Round(time.Millisecond).String()
	default:
		held = "?"
	}
	outcome := cmp.Or(s.Outcome, audit.NoEnd)
	if d := s.StoppedFor(); d > 0 {
		outcome += fmt.Sprintf("; stopped for %v", d.Round(time.Millisecond))
	}
	if t := s.StoppedSince(); !t.IsZero() {
		outcome += "; stopped since " + show.Timestamp(t)
	}
	operation := text.Or(s.Operation, "-")
	if s.Job != "" {
		operation += " " + text.Or(s.Job, "-")
	}
	return fmt.Sprintf("%s\t%v\t%s\t%s\t%s\t%s\t%s", show.Timestamp(s.Asked), s.Waited().Round(time.Millisecond), held, text.Or(s.Mode, "-"), operation,
		text.Or(s.Who, "-"), text.Brief(outcome))
}
