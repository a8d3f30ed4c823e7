package audit

import (
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"
)

// of makes a log, with each event some seconds after the first.
func of(events ...Record) (records []Record) {
	for _, r := range events {
		r.Timestamp = time.Date(2026, 3, 7, 9, 0, r.PID, 0, time.UTC)
		r.PID = 7
		records = append(records, r)
	}
	return records
}

func at(second int, event, id string, r Record) Record {
	r.PID, r.Event, r.RequestID = second, event, id
	return r
}

var code3 = 3

var log = of(
	at(0, Acquired, "a", Record{Mode: "shared", Operation: "backup", TTLSeconds: 60, WaitedSeconds: 1}),
	at(1, Acquired, "b", Record{Mode: "shared", Operation: "<&\x1b\xff", TTLSeconds: 60}),
	at(2, Blocked, "c", Record{Mode: "exclusive", Operation: "prune", WaitedSeconds: 2, HeldBy: []Holder{{Holder: "h (pid 1)", Intent: "backup"}}}),
	at(3, Released, "a", Record{Result: Success}),
	at(10, Lost, "b", Record{Error: "late"}),
	at(11, Paused, "b", Record{}),
	at(20, Resumed, "b2", Record{ResumedFrom: "b"}),
	at(25, Released, "b2", Record{Result: Failure, ExitCode: &code3}),
	at(26, Acquired, "d", Record{Mode: "exclusive", Operation: "prune", TTLSeconds: 60, WaitedSeconds: 20}),
	at(30, Lost, "d", Record{Error: "broken"}),
	at(31, Lost, "d", Record{Error: "broken"}), // once more: it can't be resumed
	at(31, Released, "d", Record{Result: Failure}),
	at(32, Acquired, "e", Record{Mode: "shared", Operation: "restore", TTLSeconds: 10}),
	at(33, Stolen, "e", Record{HeldBy: []Holder{{Holder: "h", Intent: "backup"}}}),
	at(34, Broken, "", Record{}),
	at(35, Released, "unknown", Record{}),
)

func TestHistory(t *testing.T) {
	h := NewHistory(log)
	var got []string
	for _, s := range h.Spans {
		line := fmt.Sprintf("%s asked %s", s.Mode, s.Asked.Format("05"))
		if !s.Held.IsZero() {
			line += " held " + s.Held.Format("05")
		}
		if !s.End.IsZero() {
			line += " end " + s.End.Format("05")
		}
		line += " until " + s.Until().Format("05") + ": " + s.Outcome
		for _, stop := range s.Stops {
			line += fmt.Sprintf(", stopped %s to %s", stop.From.Format("05"), stop.To.Format("05"))
		}
		got = append(got, line)
	}
	want := `shared asked 59 held 00 end 03 until 03: success
exclusive asked 00 end 02 until 02: refused: held by h (pid 1), backup
shared asked 01 held 01 end 25 until 25: failure, exit code 3, stopped 11 to 20
exclusive asked 06 held 26 end 30 until 30: lost: broken
shared asked 32 held 32 until 42: `
	if strings.Join(got, "\n") != want {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), want)
	}
	if len(h.Removals) != 2 || h.Removals[0].Of != "h, backup" {
		t.Errorf("removals: %+v", h.Removals)
	}
}

// TestSVG: the drawing is well-formed and complete, and spans that overlap are in different
// lanes.
func TestSVG(t *testing.T) {
	var b strings.Builder
	if err := NewHistory(log).Timeline().WriteSVG(&b); err != nil {
		t.Fatal(err)
	}
	for d := xml.NewDecoder(strings.NewReader(b.String())); ; {
		if _, err := d.Token(); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatalf("%v\n%s", err, b.String())
		}
	}
	for what, n := range map[string]int{
		`class="exclusive"`: 1, `class="shared"`: 2, `class="shared unknown"`: 1, `class="wait"`: 3, `class="stop"`: 1,
		`class="lost"`: 1, `class="refused"`: 1, `class="removal"`: 2, "&lt;&amp;\ufffd\ufffd": 2, // name and title
	} {
		if got := strings.Count(b.String(), what); got != n {
			t.Errorf("%d times %s, want %d", got, what, n)
		}
	}
	if strings.Contains(b.String(), "NaN") || strings.Contains(b.String(), "Inf") {
		t.Error(b.String())
	}
	for _, few := range [][]Record{nil, log[:1], of(at(1, Blocked, "x", Record{}))} {
		b.Reset()
		if err := NewHistory(few).Timeline().WriteSVG(&b); err != nil || strings.Contains(b.String(), "NaN") {
			t.Errorf("%d records: %v\n%s", len(few), err, b.String())
		}
	}
}

type full struct{ room int }

func (f *full) Write(p []byte) (int, error) {
	if f.room -= len(p); f.room < 0 {
		return 0, io.ErrShortWrite
	}
	return len(p), nil
}

func TestSVGFails(t *testing.T) {
	if err := NewHistory(log).Timeline().WriteSVG(&full{500}); err == nil {
		t.Error("what couldn't be written is no error")
	}
}

// TestSVGEscapes: no text of a log becomes a part of the drawing itself.
func TestSVGEscapes(t *testing.T) {
	const evil = `"/><script>alert(1)</script>&'`
	r := Record{Mode: evil, Operation: evil, LockName: evil, Actor: evil, Hostname: evil, Error: evil, TTLSeconds: 60, HeldBy: []Holder{{Holder: evil, Intent: evil}}}
	var b strings.Builder
	if err := NewHistory(of(at(0, Acquired, "a", r), at(1, Lost, "a", r), at(2, Blocked, "b", r), at(3, Stolen, "c", r), at(4, Acquired, "d", r))).Timeline().WriteSVG(&b); err != nil {
		t.Fatal(err)
	}
	if strings.Contains(b.String(), "<script") || strings.Contains(b.String(), `"/><s`) {
		t.Error(b.String())
	}
	for d := xml.NewDecoder(strings.NewReader(b.String())); ; {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if e, ok := token.(xml.StartElement); ok && e.Name.Local == "script" {
			t.Error("there is a script")
		}
	}
}
