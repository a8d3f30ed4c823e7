package show

import (
	"os"
	"strconv"
	"strings"
	"unicode"

	"golang.org/x/term"
	"golang.org/x/text/width"

	"github.com/repolock/repolock/internal/text"
)

// Widths of a table that aren't the width of a terminal.
const (
	allColumns = 0       // with --wide: no bound, and whole ids and keys
	Narrowest  = 60      // on a narrower terminal
	unbounded  = 1 << 30 // in a pipe or a file
)

// ColumnsOf returns the width of a table in a file: the width of the terminal, or else $COLUMNS.
func ColumnsOf(f *os.File) int {
	width := TerminalWidth(f)
	if width == 0 {
		width, _ = strconv.Atoi(os.Getenv("COLUMNS"))
	}
	if width <= 0 {
		return unbounded
	}
	return max(width, Narrowest)
}

// TableWidth returns the width of a table on stdout.
func TableWidth(wide bool) int {
	if wide {
		return allColumns
	}
	return ColumnsOf(os.Stdout)
}

// TerminalWidth returns the width of a terminal in columns, or 0 if the file is no terminal.
func TerminalWidth(f *os.File) int {
	width, _, err := term.GetSize(int(f.Fd()))
	if err != nil {
		return 0
	}
	return max(width, 0)
}

// Column is a column of a table.
type Column struct {
	Name  string
	Cells []string
	right bool // Cells are aligned at their ends
	Wrap  bool // of the last column: long cells are broken into lines
	// Drop is the turn in which the column is left out of a table that is too wide. 0 means never.
	Drop int
	// Least is the width to which cells are cut before a column is left out. At 0 they aren't cut.
	Least int
}

// Table formats cells below the names of their columns.
func Table(columns []Column, width int) string {
	return rows(columns, fitted(columns, width), width, true)
}

// rows formats the cells of a table whose columns have these widths, below their names if named is set.
func rows(columns []Column, widths []int, width int, named bool) string {
	var b strings.Builder
	first := 0
	if named {
		first = -1
	}
	for row := first; row < len(columns[0].Cells); row++ {
		line := ""
		for i, c := range columns {
			cell := c.Name
			if row >= 0 {
				cell = c.Cells[row]
			}
			if widths[i] == 0 {
				continue
			}
			cell = Cut(cell, widths[i])
			padding, start := strings.Repeat(" ", widths[i]-ColumnsIn(cell)), ColumnsIn(line)
			switch {
			case c.right:
				line += padding + cell + "  "
			case c.Wrap && width > 0 && start+ColumnsIn(cell) > width:
				line += strings.TrimLeft(text.Wrap(cell, width, strings.Repeat(" ", start)), " ")
			default:
				line += cell + padding + "  "
			}
		}
		b.WriteString(strings.TrimRight(line, " ") + "\n")
	}
	return b.String()
}

// Aligned is a table of rows whose cells are separated by tabs. The first row has the names, with > before the
// name of a column that is aligned at its right.
func Aligned(rows ...string) string { return Table(ColumnsOfRows(rows, nil), unbounded) }

// ColumnsOfRows returns the columns of rows as Aligned takes them. limits has Least and Drop of some columns, by
// their names.
func ColumnsOfRows(rows []string, limits map[string]Column) (columns []Column) {
	for i, row := range rows {
		for c, cell := range strings.Split(row, "\t") {
			if i == 0 {
				name := strings.TrimPrefix(cell, ">")
				columns = append(columns, Column{Name: name, right: name != cell, Least: limits[name].Least, Drop: limits[name].Drop})
			} else {
				columns[c].Cells = append(columns[c].Cells, cell)
			}
		}
	}
	return columns
}

// fitted returns the widths of the columns, and 0 for a column that is left out. If the table is too wide, cells are
// cut to Least, then columns are left out, and then cells are cut further.
func fitted(columns []Column, width int) []int {
	for turn := 0; ; turn++ {
		widths, last := make([]int, len(columns)), true
		for i, c := range columns {
			last = last && c.Drop <= turn
			for _, cell := range append(c.Cells, c.Name) {
				if c.Drop > turn || c.Drop == 0 {
					widths[i] = max(widths[i], ColumnsIn(cell))
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

// shrink makes the widest columns narrower, down to least or, with further, to the width of their names. It reports
// whether the table fits then.
func shrink(columns []Column, widths []int, width int, further bool) bool {
	for {
		over, widest := -2-width, -1
		for i, c := range columns {
			least := c.Least
			if further {
				least = min(least, len(c.Name))
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

// Hanging breaks a line between words if it is wider than width, and indents the further lines. A width of 0 is no
// bound, because a log has whole lines.
func Hanging(line string, width int) string {
	const indent = "  "
	if width == 0 || ColumnsIn(line) <= width {
		return line
	}
	return strings.TrimPrefix(text.Wrap(line, width, indent), indent)
}

// Folded breaks lines as Hanging does, and cuts a word that is longer than a line, such as a key.
func Folded(lines string, width int) string {
	if width == 0 || lines == "" {
		return lines
	}
	var b strings.Builder
	for line := range strings.Lines(lines) {
		for part := range strings.SplitSeq(Hanging(strings.TrimSuffix(line, "\n"), width), "\n") {
			b.WriteString(Cut(part, width) + "\n")
		}
	}
	return b.String()
}

// Cut shortens a text to at most this number of columns of a terminal.
func Cut(text string, columns int) string {
	if ColumnsIn(text) <= columns {
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

// ColumnsIn returns the width of a text on a terminal.
func ColumnsIn(text string) (n int) {
	for _, r := range text {
		n += columnsOfRune(r)
	}
	return n
}

// columnsOfRune is 2 for a wide character, such as a Chinese one, and 0 for a combining mark.
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
