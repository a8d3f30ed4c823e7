//go:build linux

package main

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

// screen is what a terminal shows. It knows the escape sequences that bash and repolock use, and
// fails at any other.
type screen struct {
	rows     [][]rune
	row, col int
	columns  int
	begun    []byte // of a rune or an escape sequence that isn't complete
}

func newScreen(rows, columns int) *screen {
	return &screen{rows: make([][]rune, rows), columns: columns}
}

// Write shows what a program has written.
func (s *screen) Write(p []byte) (int, error) {
	todo := append(s.begun, p...)
	for len(todo) > 0 {
		n, err := s.one(todo)
		if err != nil {
			return 0, err
		}
		if n == 0 {
			break
		}
		todo = todo[n:]
	}
	s.begun = append([]byte(nil), todo...)
	return len(p), nil
}

// one shows one rune or escape sequence, and returns its length: 0 if it isn't complete.
func (s *screen) one(p []byte) (int, error) {
	if p[0] == 0x1b {
		return s.escape(p)
	}
	if !utf8.FullRune(p) {
		return 0, nil
	}
	r, n := utf8.DecodeRune(p)
	switch {
	case r == '\r':
		s.col = 0
	case r == '\n':
		s.down()
	case r == '\b':
		s.col = max(s.col-1, 0)
	case r == '\a':
	case r < ' ':
		return 0, fmt.Errorf("the terminal got %q", r)
	default:
		if s.col == s.columns {
			s.col = 0
			s.down()
		}
		s.put(r)
	}
	return n, nil
}

func (s *screen) put(r rune) {
	row := s.rows[s.row]
	for len(row) <= s.col {
		row = append(row, ' ')
	}
	row[s.col] = r
	s.rows[s.row] = row
	s.col++
}

func (s *screen) down() {
	if s.row++; s.row == len(s.rows) {
		s.row--
		s.rows = append(s.rows[1:], nil)
	}
}

// escape obeys a sequence that begins with ESC.
func (s *screen) escape(p []byte) (int, error) {
	if len(p) < 2 {
		return 0, nil
	}
	if p[1] != '[' {
		return 0, fmt.Errorf("the terminal got %q", p[:2])
	}
	end := strings.IndexFunc(string(p[2:]), func(r rune) bool { return r >= '@' && r <= '~' })
	if end < 0 {
		return 0, nil
	}
	sequence := string(p[2 : 3+end])
	switch sequence {
	case "?2004h", "?2004l": // how pasted text is marked
	case "J": // what is right of the cursor, and below
		for i := s.row + 1; i < len(s.rows); i++ {
			s.rows[i] = nil
		}
		fallthrough
	case "K":
		s.rows[s.row] = s.rows[s.row][:min(s.col, len(s.rows[s.row]))]
	default:
		return 0, fmt.Errorf("the terminal got ESC[%s", sequence)
	}
	return 3 + end, nil
}

// texts returns the rows as they look.
func (s *screen) texts() []string {
	texts := make([]string, len(s.rows))
	for i, row := range s.rows {
		texts[i] = strings.TrimRight(string(row), " ")
	}
	return texts
}
