package main

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/repolock/repolock/replock"
)

// TestWideCharacters: a character that takes two columns of a terminal counts as two, and a mark on
// another one as none.
func TestWideCharacters(t *testing.T) {
	for text, n := range map[string]int{"": 0, "web1": 4, "…": 1, "é": 1, "e\u0301": 1, "備份": 4, "Ａ": 2, "🙂": 2} {
		if got := columnsIn(text); got != n {
			t.Errorf("%q has %d columns, want %d", text, got, n)
		}
	}
	if got := cut("備份主機", 6); got != "備份…" {
		t.Errorf("cut to %q", got)
	}
	table := lockTable([]found[replock.Info]{
		{lock: aLock(replock.Shared, "備份", "主機一 (pid 7)", "root", "7bec0cc37371631e1fc2a328529b5d22", time.Minute, 0)},
		{lock: aLock(replock.Shared, "backup", "web1 (pid 7)", "root", "8bec0cc37371631e1fc2a328529b5d22", time.Minute, 0)},
	}, 80)
	for line := range strings.Lines(table) {
		before, _, found := strings.Cut(line, "1m")
		if !found {
			before, _, _ = strings.Cut(line, "FOR")
		}
		if n := columnsIn(before); n != columnsIn("VERDICT  MODE    OPERATION  主機一 (pid 7, root)  ") {
			t.Errorf("the fifth column begins at %d: %q", n, line)
		}
	}
}

// TestPipeIsNotCut: a table in a pipe or a file has every column whole, with short ids. COLUMNS bounds it.
func TestPipeIsNotCut(t *testing.T) {
	reader, writer, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close()
	defer writer.Close()
	var locks []found[replock.Info]
	for _, l := range someLocks() {
		locks = append(locks, found[replock.Info]{lock: l})
	}
	t.Setenv("COLUMNS", "")
	whole := lockTable(locks, columnsOf(writer))
	for _, want := range []string{"LAST SEEN  ID\n", "db-primary-17.eu-central.example.org (pid 1048576, backup-operator)", " 7bec0cc3\n"} {
		if !strings.Contains(whole, want) {
			t.Errorf("no %q in\n%s", want, whole)
		}
	}
	if strings.Contains(whole, "…") || strings.Contains(whole, "EXPIRES") {
		t.Errorf("cut, or with the columns of --wide:\n%s", whole)
	}
	t.Setenv("COLUMNS", "80")
	if lockTable(locks, columnsOf(writer)) != lockTable(locks, 80) {
		t.Error("COLUMNS doesn't bound it")
	}
}

// TestCutInTurn: a table that is too wide has names cut to their least, then columns left out, and
// names cut to less only without these.
func TestCutInTurn(t *testing.T) {
	l := aLock(replock.Shared, strings.Repeat("o", 30), strings.Repeat("h", 60)+" (pid 1)", "u", "7bec0cc37371631e1fc2a328529b5d22", time.Minute, 0)
	for width, want := range map[int]struct {
		columns   string
		operation int // its length
		holder    int
	}{
		120: {"FOR LAST SEEN ID", 30, 45},
		81:  {"FOR LAST SEEN ID", 12, 24},
		80:  {"FOR ID", 22, 24},
		70:  {"FOR ID", 12, 24},
		69:  {"ID", 16, 24},
		65:  {"ID", 12, 24},
		64:  {"", 21, 24},
		54:  {"", 12, 23},
	} {
		table := lockTable([]found[replock.Info]{{lock: l}}, width)
		head, row, _ := strings.Cut(table, "\n")
		_, shown, _ := strings.Cut(head, "HOLDER")
		cells := strings.Fields(row)
		if got := strings.Join(strings.Fields(shown), " "); got != want.columns || columnsIn(cells[2]) != want.operation || columnsIn(cells[3]) != want.holder {
			t.Errorf("%d: want %+v:\n%s", width, want, table)
		}
	}
}

// TestQuestionFits: the question of break-lock fits a narrow terminal, and counts the locks.
func TestQuestionFits(t *testing.T) {
	for n, want := range map[int]string{1: "Delete this lock? [y/N] ", 1234: "Delete these 1234 locks? [y/N] "} {
		asked := question(n)
		if !strings.HasSuffix(asked, "\n"+want) {
			t.Errorf("%d: %q", n, asked)
		}
		for line := range strings.Lines(asked) {
			if columnsIn(strings.TrimSuffix(line, "\n")) > narrowest {
				t.Errorf("%q is wide", line)
			}
		}
	}
}
