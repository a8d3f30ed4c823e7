package main

import (
	"cmp"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/term"

	"github.com/repolock/repolock/cmd/internal/session"
	"github.com/repolock/repolock/internal/text"
	"github.com/repolock/repolock/replock"
)

// Widths of a table beside that of a terminal.
const (
	allColumns = 0       // --wide: no bound, and whole ids and keys
	narrowest  = 60      // of a terminal that is narrower
	unbounded  = 1 << 30 // of a pipe or a file
)

// columnsOf returns the width of a table in a file: that of the terminal, or $COLUMNS.
func columnsOf(f *os.File) int {
	width := terminalWidth(f)
	if width == 0 {
		width, _ = strconv.Atoi(os.Getenv("COLUMNS"))
	}
	if width <= 0 {
		return unbounded
	}
	return max(width, narrowest)
}

// tableWidth is columnsOf stdout, or allColumns.
func tableWidth(wide bool) int {
	if wide {
		return allColumns
	}
	return columnsOf(os.Stdout)
}

// terminalWidth returns 0 for a file that is no terminal.
func terminalWidth(f *os.File) int {
	width, _, err := term.GetSize(int(f.Fd()))
	if err != nil {
		return 0
	}
	return max(width, 0)
}

// lockColumn is a column of the table of locks.
type lockColumn struct {
	name string
	cell func(found[replock.Info]) string
	// drop is the turn in which the column is left out of a table that is too wide. 0 is never.
	drop int
	// least is the width to which cells are cut before a column is left out. 0 is never.
	least int
}

// lockTable lists locks, one a line, the waiting ones last, and notes about some of them below. It
// is at most width columns wide.
func lockTable(locks []found[replock.Info], width int) string {
	if len(locks) == 0 {
		return "no locks\n"
	}
	var ids []string
	for _, l := range locks {
		ids = append(ids, l.lock.ID)
	}
	columns := []lockColumn{
		{name: "VERDICT", cell: func(l found[replock.Info]) string { return verdict(l.lock) }},
		{name: "MODE", cell: func(l found[replock.Info]) string { return l.lock.Mode.String() }},
		{name: "OPERATION", cell: func(l found[replock.Info]) string { return text.Or(l.lock.Operation, "-") }, least: 12},
		{name: "HOLDER", cell: func(l found[replock.Info]) string { return holderCell(l.lock) }, least: 24},
		{name: "FOR", cell: func(l found[replock.Info]) string { return cell(heldFor(l.lock))(text.Duration) }, drop: 2},
		{name: "LAST SEEN", cell: func(l found[replock.Info]) string { return cell(lastSeen(l.lock))(text.Ago) }, drop: 1},
		{name: "ID", cell: func(l found[replock.Info]) string { return shortID(l.lock.ID, ids) }, drop: 3},
	}
	if width == allColumns {
		columns = columns[:len(columns)-1]
		columns = append(columns,
			lockColumn{name: "SINCE", cell: func(l found[replock.Info]) string { return since(l.lock.Acquired) }},
			lockColumn{name: "EXPIRES", cell: func(l found[replock.Info]) string { return left(l.lock) }},
			lockColumn{name: "ID", cell: func(l found[replock.Info]) string { return text.Or(l.lock.ID, "-") }},
			lockColumn{name: "KEY", cell: func(l found[replock.Info]) string { return text.Brief(l.lock.Key()) }},
		)
	}
	if slices.ContainsFunc(locks, func(l found[replock.Info]) bool { return l.place != "" }) {
		columns = append(columns, lockColumn{name: "PLACE", cell: func(l found[replock.Info]) string { return text.Escape(cmp.Or(l.place, "-")) }, least: 20})
	}
	sorted := slices.Clone(locks)
	slices.SortStableFunc(sorted, func(a, b found[replock.Info]) int { return session.ByTurn(a.lock, b.lock) })
	shown := rows(columns, sorted, width)
	for _, l := range sorted {
		shown += folded(notes(l.lock, ids, width == allColumns), width)
	}
	return shown
}

// verdict returns what a person needs to know about a lock first. A lock that is waited for isn't
// live, and one whose process is gone is dead, whatever its ttl.
func verdict(i replock.Info) string {
	switch {
	case i.Verdict == replock.Unreadable || i.Verdict == replock.Released:
		return i.Verdict.String()
	case i.ProcessGone:
		return "dead"
	case i.Verdict == replock.Live && i.State == replock.StateWaiting:
		return "waiting"
	default:
		return i.Verdict.String()
	}
}

func holderCell(i replock.Info) string {
	if i.Holder == "" {
		return "-"
	}
	return who(i)
}

// cell formats a length of time, if there is one.
func cell(d time.Duration, ok bool) func(func(time.Duration) string) string {
	return func(format func(time.Duration) string) string {
		if !ok {
			return "-"
		}
		return format(d)
	}
}

// notes explains the verdict on a lock, a sentence a line.
func notes(i replock.Info, ids []string, whole bool) (lines string) {
	name := shortID(i.ID, ids)
	if whole || i.ID == "" {
		name = text.Brief(cmp.Or(i.ID, i.Key()))
	}
	note := func(words string) { lines += name + ": " + words + "\n" }
	if i.ProcessGone {
		note("its holder was a process of this machine, which is gone")
	}
	if i.Why != "" {
		note(text.Brief(i.Why))
	}
	if !i.StoreClock && i.Verdict != replock.Unreadable && !i.Expires.IsZero() {
		note("the store doesn't tell its time; what is left is by this machine's clock")
	}
	return lines
}

func since(t time.Time) string {
	if t.IsZero() {
		return "-"
	}
	return t.UTC().Format(time.RFC3339)
}

// left returns when a lock expires if it isn't refreshed.
func left(i replock.Info) string {
	switch {
	case i.Verdict == replock.Unreadable:
		return "never"
	case i.TTL == 0 && i.Expires.IsZero():
		return "-"
	case i.Left <= 0:
		return text.Ago(-i.Left)
	default:
		return "in " + text.Duration(i.Left)
	}
}

// rows formats the cells of locks below the names of the columns.
func rows(columns []lockColumn, locks []found[replock.Info], width int) string {
	cells := make([][]string, len(columns))
	natural := make([]int, len(columns))
	for c, column := range columns {
		cells[c] = []string{column.name}
		for _, l := range locks {
			cells[c] = append(cells[c], column.cell(l))
		}
		for _, s := range cells[c] {
			natural[c] = max(natural[c], columnsIn(s))
		}
	}
	widths := fitted(columns, natural, width)
	var b strings.Builder
	for row := range cells[0] {
		line := ""
		for c := range columns {
			if widths[c] > 0 {
				shown := cut(cells[c][row], widths[c])
				line += shown + strings.Repeat(" ", widths[c]-columnsIn(shown)+2)
			}
		}
		b.WriteString(strings.TrimRight(line, " ") + "\n")
	}
	return b.String()
}

// fitted returns the widths of columns in a table, 0 for one that is left out. Cells are cut to the
// least of their column, then columns are left out, and then cells are cut to less.
func fitted(columns []lockColumn, natural []int, width int) []int {
	widths := slices.Clone(natural)
	over := func() int {
		n := -2 - width
		for _, w := range widths {
			if w > 0 {
				n += w + 2
			}
		}
		return n
	}
	for turn := 1; width > 0 && over() > 0; turn++ {
		if shrink(columns, widths, over, false) {
			break
		}
		at := slices.IndexFunc(columns, func(c lockColumn) bool { return c.drop == turn })
		if at < 0 {
			shrink(columns, widths, over, true)
			break
		}
		left := widths
		widths = slices.Clone(natural)
		for c := range widths {
			if left[c] == 0 || c == at {
				widths[c] = 0
			}
		}
	}
	return widths
}

// shrink makes the widest columns that can be cut narrower until nothing is over, and reports
// whether it could.
func shrink(columns []lockColumn, widths []int, over func() int, below bool) bool {
	for over() > 0 {
		widest := -1
		for c, column := range columns {
			least := column.least
			if below {
				least = min(least, len(column.name))
			}
			if least > 0 && widths[c] > least && (widest < 0 || widths[c] > widths[widest]) {
				widest = c
			}
		}
		if widest < 0 {
			return false
		}
		widths[widest]--
	}
	return true
}

// folded breaks lines between words, and cuts a word that is longer than a line, as a key can be.
func folded(lines string, width int) string {
	if width == 0 || lines == "" {
		return lines
	}
	var b strings.Builder
	for line := range strings.Lines(lines) {
		for part := range strings.Lines(hanging(strings.TrimSuffix(line, "\n"), width) + "\n") {
			b.WriteString(cut(strings.TrimSuffix(part, "\n"), width) + "\n")
		}
	}
	return b.String()
}
