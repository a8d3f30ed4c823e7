package main

import (
	"os"
	"strconv"
	"strings"
	"unicode"

	"golang.org/x/term"
	"golang.org/x/text/width"

	"github.com/repolock/repolock/internal/text"
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

// column is a column of a table.
type column struct {
	name  string
	cells []string
	// drop is the turn in which the column is left out of a table that is too wide. 0 is never.
	drop int
	// least is the width to which cells are cut before a column is left out. 0 is never.
	least int
}

// table formats cells below the names of their columns.
func table(columns []column, width int) string {
	widths := fitted(columns, width)
	var b strings.Builder
	for row := -1; row < len(columns[0].cells); row++ {
		line := ""
		for i, c := range columns {
			shown := c.name
			if row >= 0 {
				shown = c.cells[row]
			}
			if widths[i] > 0 {
				shown = cut(shown, widths[i])
				line += shown + strings.Repeat(" ", widths[i]-columnsIn(shown)+2)
			}
		}
		b.WriteString(strings.TrimRight(line, " ") + "\n")
	}
	return b.String()
}

// aligned is a table of rows whose cells have tabs between them. The first row has the names.
func aligned(rows ...string) string {
	var columns []column
	for i, row := range rows {
		for c, cell := range strings.Split(row, "\t") {
			if i == 0 {
				columns = append(columns, column{name: cell})
			} else {
				columns[c].cells = append(columns[c].cells, cell)
			}
		}
	}
	return table(columns, unbounded)
}

// fitted returns the widths of columns in a table, 0 for one that is left out. Cells are cut to the
// least of their column, then columns are left out, and then cells are cut to less.
func fitted(columns []column, width int) []int {
	for turn := 0; ; turn++ {
		widths, last := make([]int, len(columns)), true
		for i, c := range columns {
			last = last && c.drop <= turn
			for _, cell := range append(c.cells, c.name) {
				if c.drop > turn || c.drop == 0 {
					widths[i] = max(widths[i], columnsIn(cell))
				}
			}
		}
		if width == allColumns || shrink(columns, widths, width, false) {
			return widths
		}
		if last {
			shrink(columns, widths, width, true)
			return widths
		}
	}
}

// shrink makes the widest columns that can be cut narrower until they fit, and reports whether they do.
func shrink(columns []column, widths []int, width int, below bool) bool {
	for {
		over, widest := -2-width, -1
		for i, c := range columns {
			least := c.least
			if below {
				least = min(least, len(c.name))
			}
			if widths[i] > 0 {
				over += widths[i] + 2
			}
			if least > 0 && widths[i] > least && (widest < 0 || widths[i] > widths[widest]) {
				widest = i
			}
		}
		if over <= 0 || widest < 0 {
			return over <= 0
		}
		widths[widest]--
	}
}

// hanging breaks a line that is wider than width between words, and indents the rest of it. 0 is no
// bound: a log has whole lines.
func hanging(line string, width int) string {
	const indent = "  "
	if width == 0 || columnsIn(line) <= width {
		return line
	}
	return strings.TrimPrefix(text.Wrap(line, width, indent), indent)
}

// folded breaks lines between words, and cuts a word that is longer than a line, as a key can be.
func folded(lines string, width int) string {
	if width == 0 || lines == "" {
		return lines
	}
	var b strings.Builder
	for line := range strings.Lines(lines) {
		for part := range strings.SplitSeq(hanging(strings.TrimSuffix(line, "\n"), width), "\n") {
			b.WriteString(cut(part, width) + "\n")
		}
	}
	return b.String()
}

// cut cuts a text to so many columns of a terminal.
func cut(text string, columns int) string {
	if columnsIn(text) <= columns {
		return text
	}
	n := 0
	for i, r := range text {
		if n += columnsOfRune(r); n > columns-1 {
			return text[:i] + "…"
		}
	}
	return text
}

// columnsIn returns the number of columns that a text takes on a terminal.
func columnsIn(text string) (n int) {
	for _, r := range text {
		n += columnsOfRune(r)
	}
	return n
}

// columnsOfRune is 2 for a wide character, as of Chinese, and 0 for a mark on another one.
func columnsOfRune(r rune) int {
	if r < 0x300 {
		return 1
	}
	if unicode.In(r, unicode.Mn, unicode.Me) {
		return 0
	}
	if k := width.LookupRune(r).Kind(); k == width.EastAsianWide || k == width.EastAsianFullwidth {
		return 2
	}
	return 1
}
