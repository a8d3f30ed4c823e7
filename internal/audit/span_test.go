package audit

import (
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/repolock/repolock/internal/test/assert"
)

// nine is a time some seconds after nine.
func nine(second int) time.Time { return time.Date(2026, 3, 7, 9, 0, second, 0, time.UTC) }

// at makes a record of an event some seconds after nine.
func at(second int, event, id string, r Record) Record {
	r.Event, r.RequestID, r.Timestamp = event, id, nine(second)
	return r
}

var code3 = 3

var log = []Record{
	at(0, Acquired, "a", Record{Mode: "shared", Operation: "backup", TTLSeconds: 60, WaitedSeconds: 1}),
	at(1, Acquired, "b", Record{Mode: "shared", Operation: "<&\x1b\xff", TTLSeconds: 60}),
	at(2, Blocked, "c", Record{Mode: "exclusive", Operation: "prune", WaitedSeconds: 2, HeldBy: []Holder{{Holder: "h (pid 1)", Intent: "backup"}}}),
	at(3, Released, "a", Record{Result: Success}),
	at(10, Lost, "b", Record{Error: "late"}),
	at(11, Paused, "b", Record{}),
	at(20, Resumed, "b2", Record{ResumedFrom: "b"}),
	at(21, Lost, "b2", Record{Error: "late"}),
	at(22, Paused, "b2", Record{}),
	at(24, Resumed, "b3", Record{ResumedFrom: "b2"}),
	at(25, Released, "b3", Record{Result: Failure, ExitCode: &code3}),
	at(26, Acquired, "d", Record{Mode: "exclusive", Operation: "prune", TTLSeconds: 60, WaitedSeconds: 20}),
	at(30, Lost, "d", Record{Error: "broken"}),
	at(31, Lost, "d", Record{Error: "broken"}), // reported again, because it can't be resumed
	at(31, Released, "d", Record{Result: Failure}),
	at(32, Acquired, "e", Record{Mode: "shared", Operation: "restore", TTLSeconds: 10}),
	at(33, Stolen, "e", Record{HeldBy: []Holder{{Holder: "h", Intent: "backup"}}}),
	at(34, Broken, "", Record{}),
	at(35, Released, "unknown", Record{}),
}

// TestHistory: the events of each lock become one span, whatever its outcome.
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
shared asked 01 held 01 end 25 until 25: failure, exit code 3, stopped 11 to 20, stopped 22 to 24
exclusive asked 06 held 26 end 30 until 30: lost: broken
shared asked 32 held 32 until 42: `
	assert.That(t, strings.Join(got, "\n") == want, "got\n%s\nwant\n%s", strings.Join(got, "\n"), want)
	assert.That(t, len(h.Removals) == 2 && h.Removals[0].Of == "h, backup", "removals: %+v", h.Removals)
}

// TestSVG: a drawing is well-formed, even of few records and of texts that XML forbids. No text becomes
// an element. TestGolden has all parts of a drawing.
func TestSVG(t *testing.T) {
	const script = `"/><script>alert(1)</script>&'`
	r := Record{Mode: script, Operation: script, LockName: script, Actor: script, Hostname: script, Error: script, TTLSeconds: 60,
		HeldBy: []Holder{{Holder: script, Intent: script}}}
	for _, records := range [][]Record{
		log, nil, log[:1], {at(1, Blocked, "x", Record{})},
		{at(0, Acquired, "a", r), at(1, Lost, "a", r), at(2, Blocked, "b", r), at(3, Stolen, "c", r), at(4, Acquired, "d", r)},
	} {
		text := svg(t, NewHistory(records))
		for d := xml.NewDecoder(strings.NewReader(text)); ; {
			token, err := d.Token()
			if errors.Is(err, io.EOF) {
				break
			}
			if e, ok := token.(xml.StartElement); err != nil || ok && e.Name.Local == "script" {
				t.Fatalf("%v, %v\n%s", token, err, text)
			}
		}
		assert.That(t, !strings.Contains(text, "NaN") && !strings.Contains(text, "Inf"), "%d records: %s", len(records), text)
	}
	drawn := svg(t, NewHistory(log))
	for what, n := range map[string]int{`class="shared unknown"`: 1, "&lt;&amp;\ufffd\ufffd": 2} { // name and title
		assert.Equal(t, strings.Count(drawn, what), n, what)
	}
}

// TestSVGFails: a drawing that can't be written is an error.
func TestSVGFails(t *testing.T) {
	closed, w := io.Pipe()
	closed.Close()
	assert.Is(t, NewHistory(log).Timeline().WriteSVG(w), io.ErrClosedPipe)
}

// TestStops: a command is stopped while it has a cause of a stop.
func TestStops(t *testing.T) {
	for name, test := range map[string]struct {
		events  []Record
		stopped int // seconds
		stops   int
		since   int // the begin of a stop whose end the log lacks; 0: there is none
	}{
		"by a person":   {[]Record{at(1, Suspended, "a", Record{}), at(5, Continued, "a", Record{}), at(7, Suspended, "a", Record{}), at(8, Continued, "a", Record{})}, 5, 2, 0},
		"said twice":    {[]Record{at(1, Suspended, "a", Record{}), at(3, Suspended, "a", Record{}), at(5, Continued, "a", Record{}), at(6, Continued, "a", Record{})}, 4, 1, 0},
		"and it's lost": {[]Record{at(1, Suspended, "a", Record{}), at(9, Lost, "a", Record{}), at(9, Paused, "a", Record{}), at(12, Resumed, "b", Record{ResumedFrom: "a"}), at(13, Continued, "b", Record{})}, 12, 1, 0},
		"in a pause":    {[]Record{at(1, Paused, "a", Record{}), at(2, Suspended, "a", Record{}), at(3, Continued, "a", Record{}), at(4, Resumed, "b", Record{ResumedFrom: "a"})}, 3, 1, 0},
		"beyond it":     {[]Record{at(1, Paused, "a", Record{}), at(2, Suspended, "a", Record{}), at(3, Resumed, "b", Record{ResumedFrom: "a"}), at(9, Continued, "b", Record{})}, 8, 1, 0},
		"killed":        {[]Record{at(1, Suspended, "a", Record{}), at(5, Released, "a", Record{})}, 4, 1, 0},
		"no end":        {[]Record{at(1, Suspended, "a", Record{}), at(2, ClocksParted, "a", Record{}), at(3, ClocksSettled, "a", Record{})}, 0, 1, 1},
	} {
		h := NewHistory(append([]Record{at(0, Acquired, "a", Record{TTLSeconds: 60})}, test.events...))
		s := h.Spans[0]
		got := int(s.StoppedFor() / time.Second)
		assert.That(t, got == test.stopped && len(s.Stops) == test.stops, "%s: stopped for %d s, %+v", name, got, s.Stops)
		since := s.StoppedSince()
		assert.That(t, since.IsZero() == (test.since == 0) && (test.since == 0 || since.Second() == test.since), "%s: stopped since %v", name, since)
	}
}
