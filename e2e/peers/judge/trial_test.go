//go:build linux

package main

import (
	"bytes"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/repolock/repolock/internal/judge"
	"github.com/repolock/repolock/internal/test/assert"
)

// TestAround: a word {} becomes the words of the child. Within a longer word it becomes their text.
func TestAround(t *testing.T) {
	of := []string{"/tmp/x/child", "witness", "c0-1"}
	for line, want := range map[string][]string{
		"flock /l {}":                     {"flock", "/l", "/tmp/x/child", "witness", "c0-1"},
		"sh -c '{}; true'":                {"sh", "-c", "/tmp/x/child witness c0-1; true"},
		`sh -c "a 'b {}'" {}`:             {"sh", "-c", "a 'b /tmp/x/child witness c0-1'", "/tmp/x/child", "witness", "c0-1"},
		`a\ b '' {}`:                      {"a b", "", "/tmp/x/child", "witness", "c0-1"},
		`env --split-string='"x y" {}'  `: {"env", `--split-string="x y" /tmp/x/child witness c0-1`},
	} {
		got, err := around(line, of)
		assert.Is(t, err, nil, line)
		assert.Equal(t, got, want, line)
	}
}

// TestTrialCheck: Check refuses a command line that needs a shell, lacks {}, or must not have it.
func TestTrialCheck(t *testing.T) {
	for name, trial := range map[string]Trial{
		"no child":          {Exclusive: "flock /l true"},
		"no shared child":   {Exclusive: "flock /l {}", Shared: "flock -s /l true"},
		"a child to clean":  {Exclusive: "flock /l {}", Clean: "rm {}"},
		"two commands":      {Exclusive: "mkdir /l; {}"},
		"a pipe":            {Exclusive: "{} | flock /l cat"},
		"a redirection":     {Exclusive: "flock /l {}", Clean: "true >/l"},
		"an open quote":     {Exclusive: "sh -c '{}"},
		"nothing but space": {Exclusive: "flock /l {}", Clean: "  "},
	} {
		err := trial.Check()
		assert.That(t, err != nil && !strings.Contains(err.Error(), "\n"), "%s: %v", name, err)
	}
	assert.OK(t, (Trial{Exclusive: "sh -c 'mkdir /l && {}; rmdir /l'", Shared: "env {}", Clean: "sh -c 'true; rmdir /l'"}).Check())
}

// TestPicture: a picture shows when each child wrote, when it was stopped and continued, and the fault.
func TestPicture(t *testing.T) {
	const unit = time.Second // of 64 columns in 63 units
	stay := func(from, to int, more ...judge.Event) []judge.Event {
		events := []judge.Event{{Kind: judge.Start, At: time.Duration(from) * unit, Mode: judge.Exclusive}, {Kind: judge.In, At: time.Duration(from+2) * unit}}
		for at := time.Duration(from+2) * unit; at < time.Duration(to)*unit; at += beat {
			events = append(events, judge.Event{Kind: judge.Beat, At: at})
		}
		return append(append(events, more...), judge.Event{Kind: judge.End, At: time.Duration(to) * unit})
	}
	events := map[string][]judge.Event{
		"c0-1": append(stay(1, 20, judge.Event{Kind: judge.Fault, At: 20 * unit, Text: "stop-child"}, judge.Event{Kind: judge.Fault, At: 40 * unit, Text: continued}),
			judge.Event{Kind: judge.Beat, At: 41 * unit}),
		"c1-2": stay(30, 65),
		"c2-3": {{Kind: judge.Start, At: 40 * unit}, {Kind: judge.End, At: 50 * unit}},
	}
	v := judge.Violation{Name: judge.TwoIn, Sections: []string{"c0-1", "c1-2"}, Text: "both"}
	want := `stop-child: both
c0-1 exclusive |..#################!-------------------##                       |
c1-2 exclusive |                             ..#################################|
               |0                                                        64.00 s
! stop-child
`
	got := strings.Replace(picture(StopChild, v, events), ">", "#", 1)
	assert.That(t, got == want, "%s\nwant\n%s", got, want)
	v = judge.Violation{Name: NeverFreed, Sections: []string{"c0-1"}, Text: "blocked"}
	got = picture(KillAll, v, events)
	assert.That(t, strings.Contains(got, "\nothers         |") && strings.HasPrefix(got, "kill-all: blocked\n"), "%s", got)
}

// TestWitness: a witness logs its begin, beats and its end. The last beat comes after the hold.
func TestWitness(t *testing.T) {
	name := t.TempDir() + "/log"
	assert.That(t, (Witness{ID: "x", Log: name}).Do() != nil, "it needs no log")
	assert.OK(t, os.WriteFile(name, nil, 0o600))
	const hold = 3 * beat
	assert.OK(t, (Witness{ID: "x", Log: name, Hold: hold}).Do())
	log, err := os.ReadFile(name)
	assert.OK(t, err)
	events := []judge.Event{{Kind: judge.Start, ID: "x", Mode: judge.Exclusive}}
	for line := range bytes.Lines(log) {
		e, err := judge.Parse(line, func(id string) bool { return id == "x" })
		assert.OK(t, err)
		events = append(events, e)
	}
	s, err := judge.Read(append(events, judge.Event{At: events[len(events)-1].At, Kind: judge.End, ID: "x"}))
	assert.That(t, err == nil && s.Entered && s.Last-s.In >= hold && events[1].PID != 0 && events[1].Text == namespaces(), "%v: %+v", err, s)
}
