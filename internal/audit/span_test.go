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
		if s.HeldSeconds != nil {
			line += fmt.Sprintf(" after %v s", *s.HeldSeconds)
		}
		line += " until " + s.Until().Format("05") + ": " + s.Outcome
		for _, stop := range s.Stops {
			line += fmt.Sprintf(", stopped %s to %s", stop.From.Format("05"), stop.To.Format("05"))
		}
		got = append(got, line)
	}
	want := `shared asked 59 held 00 end 03 after 3 s until 03: success
exclusive asked 00 end 02 until 02: refused: held by h (pid 1), backup
shared asked 01 held 01 end 25 after 24 s until 25: failure, exit code 3, stopped 11 to 20, stopped 22 to 24
exclusive asked 06 held 26 end 30 after 4 s until 30: lost: broken
shared asked 32 held 32 until 35: `
	assert.That(t, strings.Join(got, "\n") == want, "got\n%s\nwant\n%s", strings.Join(got, "\n"), want)
	assert.That(t, len(h.Removals) == 2 && h.Removals[0].Of == "h, backup", "removals: %+v", h.Removals)
}

// TestUnknownEnd: a lock whose holder logged no end ends where other records show it, and never beside a lock that it
// excludes. The log has a refresh only if another client saw it.
func TestUnknownEnd(t *testing.T) {
	held := func(id string, seen int) []Holder {
		at := nine(seen)
		return []Holder{{RequestID: id, Holder: "h", Intent: "backup", LastHeartbeatAt: &at}}
	}
	shared, alone := Record{Mode: "shared", TTLSeconds: 60, LockPath: "/r/index/lock.shared/x"}, Record{Mode: "exclusive", TTLSeconds: 60, LockPath: "/r/index/lock.exclusive"}
	elsewhere := Record{Mode: "exclusive", LockPath: "/other/index/lock.exclusive"}
	refused := func(seen int) Record { r := alone; r.HeldBy = held("a", seen); return r }
	for name, c := range map[string]struct {
		first  Record
		events []Record
		want   string
	}{
		"still held":               {shared, []Record{at(5, Acquired, "b", shared), at(500, Acquired, "o", elsewhere)}, "seen 0, until 500: "},
		"seen by a refused client": {shared, []Record{at(100, Blocked, "b", refused(95)), at(120, Blocked, "c", refused(90))}, "seen 95, until 120: "},
		"a clock that is ahead":    {shared, []Record{at(100, Blocked, "b", refused(900))}, "seen 100, until 100: "},
		"removed":                  {shared, []Record{at(170, Stolen, "b", Record{HeldBy: held("a", 110)}), at(171, Acquired, "b", alone), at(400, Released, "b", Record{})}, "seen 110, gone 170, until 170: not released; removed as stale by ?@? (pid 0)"},
		"removed by two":           {shared, []Record{at(170, Stolen, "b", Record{HeldBy: held("a", 110)}), at(180, Stolen, "c", Record{HeldBy: held("a", 110)})}, "seen 110, gone 170, until 170: not released; removed as stale by ?@? (pid 0)"},
		"removed and noticed":      {shared, []Record{at(170, Stolen, "b", Record{HeldBy: held("a", 110)}), at(200, Lost, "a", Record{Error: "late"})}, "end 170, until 170: lost: late"},
		"a successor":              {shared, []Record{at(90, Acquired, "b", shared), at(100, Acquired, "c", alone), at(300, Released, "c", Record{})}, "seen 0, gone 100, until 100: "},
		"of an exclusive lock":     {alone, []Record{at(90, Acquired, "b", shared), at(100, Acquired, "c", alone)}, "seen 0, gone 90, until 90: "},
		"before its last event":    {shared, []Record{at(50, Suspended, "a", Record{}), at(100, Acquired, "c", alone)}, "seen 50, gone 100, until 100: "},
		"broken":                   {shared, []Record{at(50, Broken, "", Record{HeldBy: held("a", 45)}), at(51, Acquired, "b", alone)}, "end 50, until 50: broken by ?@? (pid 0)"},
		"broken and noticed":       {shared, []Record{at(50, Broken, "", Record{HeldBy: held("a", 45)}), at(58, Lost, "a", Record{Error: "deleted"}), at(59, Released, "a", Record{})}, "end 50, until 50: lost: deleted"},
		"broken and resumed":       {shared, []Record{at(50, Broken, "", Record{HeldBy: held("a", 45)}), at(58, Lost, "a", Record{}), at(60, Resumed, "a2", Record{ResumedFrom: "a"}), at(70, Released, "a2", Record{Result: Success})}, "end 70, until 70: success"},
		"not broken":               {shared, []Record{at(50, Broken, "", Record{HeldBy: held("a", 45), Error: "denied"})}, "seen 45, until 50: "},
	} {
		h := NewHistory(append([]Record{at(0, Acquired, "a", c.first)}, c.events...))
		s := h.Spans[0]
		var got []string
		for _, m := range []struct {
			word string
			time time.Time
		}{{"end", s.End}, {"seen", s.Seen}, {"gone", s.Gone}, {"until", s.Until()}} {
			if !m.time.IsZero() {
				got = append(got, fmt.Sprintf("%s %.0f", m.word, m.time.Sub(nine(0)).Seconds()))
			}
		}
		assert.Equal(t, strings.Join(got, ", ")+": "+s.Outcome, c.want, name)
		open := 0
		for _, s := range h.Spans {
			if s.End.IsZero() {
				open++
			}
		}
		assert.Equal(t, strings.Count(svg(t, h), ` unknown"`), open, "pale bars: "+name)
	}
	failed := NewHistory([]Record{at(50, Broken, "", Record{Error: "denied"})})
	assert.Equal(t, failed.Removals[0].What, "failed to break the lock of")
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

// TestStops: a command is stopped while it has a cause of a stop. Its bar in a drawing has room for each stop, and
// a stop without an end lasts until the end of the bar.
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
		"after a loss":  {[]Record{at(1, Lost, "a", Record{}), at(1, Paused, "a", Record{}), at(9, Released, "a", Record{})}, 8, 1, 0},
		"no end":        {[]Record{at(1, Suspended, "a", Record{}), at(2, ClocksParted, "a", Record{}), at(3, ClocksSettled, "a", Record{})}, 0, 1, 1},
	} {
		h := NewHistory(append([]Record{at(0, Acquired, "a", Record{TTLSeconds: 60})}, test.events...))
		s := h.Spans[0]
		got := int(s.StoppedFor() / time.Second)
		assert.That(t, got == test.stopped && len(s.Stops) == test.stops, "%s: stopped for %d s, %+v", name, got, s.Stops)
		for _, stop := range s.Stops {
			assert.That(t, !s.drawnUntil().Before(stop.To), "%s: drawn until %v, and stopped until %v", name, s.drawnUntil(), stop.To)
		}
		since := s.StoppedSince()
		assert.That(t, since.IsZero() == (test.since == 0) && (test.since == 0 || since.Second() == test.since), "%s: stopped since %v", name, since)
		if test.since != 0 {
			timeline := h.Timeline()
			stops := timeline.bars[0].stops
			assert.Equal(t, stops[len(stops)-1][1], timeline.x(s.Until()), name)
		}
	}
}
