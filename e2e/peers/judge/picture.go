//go:build linux

package main

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/repolock/repolock/internal/judge"
)

// columns is the width of a row, without its name.
const columns = 64

// Legend explains the pictures of a TrialReport.
const Legend = `# writes under the lock   - holds the lock, writes nothing   . tries to take the lock   ! the fault   > continues`

// continued is the text of the event that ends a stop.
const continued = "continue"

// picture draws a violation as text, from the first event to the last: a row for each of its sections,
// and for NeverFreed one more row for all other sections.
func picture(f Fault, v judge.Violation, events map[string][]judge.Event) string {
	var names []string
	var rows [][]judge.Event
	faults := ""
	for _, id := range v.Sections {
		name := id
		for _, e := range events[id] {
			if e.Kind == judge.Start {
				name += " " + string(e.Mode)
			} else if e.Kind == judge.Fault && e.Text != continued {
				faults += "! " + e.Text + "\n"
			}
		}
		names, rows = append(names, name), append(rows, events[id])
	}
	if v.Name == NeverFreed {
		var others []judge.Event
		for id, es := range events {
			if !slices.Contains(v.Sections, id) {
				others = append(others, es...)
			}
		}
		names, rows = append(names, "others"), append(rows, others)
	}
	all := slices.SortedFunc(slices.Values(slices.Concat(rows...)), byTime)
	from := all[0].At
	to := max(all[len(all)-1].At, from+columns)
	column := func(at time.Duration) int { return min(int(columns*(at-from)/(to-from)), columns-1) }
	width := len(slices.MaxFunc(names, func(a, b string) int { return cmp.Compare(len(a), len(b)) }))
	var b strings.Builder
	fmt.Fprintf(&b, "%s: %s\n", f, v.Text)
	for i, name := range names {
		fmt.Fprintf(&b, "%-*s |%s|\n", width, name, draw(rows[i], column))
	}
	fmt.Fprintf(&b, "%-*s |0%*s\n%s", width, "", columns-1, fmt.Sprintf("%.2f s", (to-from).Seconds()), faults)
	return b.String()
}

func byTime(a, b judge.Event) int { return cmp.Compare(a.At, b.At) }

// pauseDrawn is the shortest time between two entries that is drawn as a pause. A busy machine can delay a beat,
// but hardly for so long.
const pauseDrawn = 5 * beat

// draw draws the events of one row.
func draw(events []judge.Event, column func(time.Duration) int) string {
	line := []byte(strings.Repeat(" ", columns))
	fill := func(from, to time.Duration, c byte) {
		for i := column(from); i <= column(to); i++ {
			line[i] = c
		}
	}
	events = slices.Clone(events)
	slices.SortStableFunc(events, byTime)
	started, last, in := time.Duration(-1), time.Duration(-1), false
	for _, e := range events {
		switch e.Kind {
		case judge.Start:
			started, in = e.At, false
		case judge.In:
			fill(started, e.At, '.')
			fill(e.At, e.At, '#')
			last, in = e.At, true
		case judge.Beat, judge.Out:
			if e.At-last > pauseDrawn {
				fill(last, e.At, '-')
				fill(last, last, '#')
			}
			fill(max(last, e.At-pauseDrawn), e.At, '#')
			last = e.At
		case judge.End:
			if !in {
				fill(started, e.At, '.')
			}
		}
	}
	for _, e := range events {
		if e.Kind == judge.Fault {
			line[column(e.At)] = map[bool]byte{true: '>', false: '!'}[e.Text == continued]
		}
	}
	return string(line)
}
