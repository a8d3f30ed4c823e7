package audit

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unicode/utf8"
)

// TestLinesStayReadable: Read accepts a line of the log that quotes another client's lock,
// whatever the lock has in it.
func TestLinesStayReadable(t *testing.T) {
	long := strings.Repeat("<é\u009b", 64<<10) // six times as long, escaped
	holder := Holder{RequestID: long, Actor: long, Intent: long, Holder: long, Mode: long, State: long}
	body, err := json.Marshal(strings.Repeat("<", 64<<10-2))
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "log")
	l, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	many := make([]Holder, 300)
	for i := range many {
		many[i] = holder
	}
	for _, r := range []Record{
		{Event: Blocked, HeldBy: many, Error: long, LockPath: long},
		{Event: Stolen, HeldBy: []Holder{holder}, PreviousLock: body, Error: long, LockPath: long},
	} {
		r.Timestamp = time.Now()
		if err := l.Append(r); err != nil {
			t.Fatal(err)
		}
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	records, skipped, err := Read(bytes.NewReader(text))
	if err != nil || skipped > 0 || len(records) != 2 {
		t.Fatalf("%d records, %d skipped: %v", len(records), skipped, err)
	}
	if n := len(records[0].HeldBy); n+records[0].HeldByMore != len(many) {
		t.Errorf("%d holders and %d more", n, records[0].HeldByMore)
	}
	if intent := records[1].HeldBy[0].Intent; !strings.HasSuffix(intent, "…") || !utf8.ValidString(intent) || len(intent) > maxText+len("…") {
		t.Errorf("%d bytes: %.20q", len(intent), intent)
	}
	if !bytes.Equal(records[1].PreviousLock, body) {
		t.Error("the removed lock isn't whole")
	}
	if len(many[0].Intent) != len(long) {
		t.Error("the caller's record was changed")
	}
}

// TestReadSkips: Read skips a line that is too long or no record, and reads those after it.
func TestReadSkips(t *testing.T) {
	good := `{"event":"lock_acquired","timestamp":"2026-03-07T09:00:00Z"}` + "\n"
	endless := strings.Repeat("x", 3*maxLine)
	for text, want := range map[string][2]int{
		good + endless + "\n" + good:      {2, 1},
		endless:                           {0, 1},
		endless + "\n" + endless + "\n":   {0, 2},
		good + "{}\n" + endless + "\n{\n": {1, 3},
	} {
		records, skipped, err := Read(strings.NewReader(text))
		if err != nil || len(records) != want[0] || skipped != want[1] {
			t.Errorf("%d records, %d skipped, %v; want %v", len(records), skipped, err, want)
		}
	}
}
