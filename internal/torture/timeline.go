package torture

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/repolock/repolock/internal/judge"
)

// columns is the width of a timeline, without its names.
const columns = 64

// Legend explains the pictures of a TrialReport.
const Legend = `# writes under the lock   - is under it, and writes nothing   . tries to take it   ! the fault   > goes on`

// row is a line of a timeline.
type row struct {
	name   string
	events []judge.Event
}

// timeline draws what some contenders did, a row each, from the first event to the last.
func timeline(rows []row) string {
	from, to := time.Duration(0), time.Duration(0)
	for _, r := range rows {
		for _, e := range r.events {
			if from == 0 || e.At < from {
				from = e.At
			}
			to = max(to, e.At)
		}
	}
	to = max(to, from+columns)
	column := func(at time.Duration) int { return min(int(columns*(at-from)/(to-from)), columns-1) }
	width := 0
	for _, r := range rows {
		width = max(width, len(r.name))
	}
	var b strings.Builder
	for _, r := range rows {
		fmt.Fprintf(&b, "%-*s |%s|\n", width, r.name, r.draw(column))
	}
	end := fmt.Sprintf("%.2f s", (to - from).Seconds())
	fmt.Fprintf(&b, "%-*s |0%*s\n", width, "", columns-1, end)
	return b.String()
}

// pauseDrawn is how long a child writes nothing if it is drawn so. Its beats are shorter.
const pauseDrawn = 5 * beat

func (r row) draw(column func(time.Duration) int) string {
	line := []byte(strings.Repeat(" ", columns))
	fill := func(from, to time.Duration, c byte) {
		for i := column(from); i <= column(to); i++ {
			line[i] = c
		}
	}
	events := slices.Clone(r.events)
	slices.SortStableFunc(events, func(a, b judge.Event) int { return cmp.Compare(a.At, b.At) })
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

// continued is the text of the event with which a fault ends.
const continued = "continue"

// picture returns a violation as text: the sections that it is about, and all others together.
func picture(f Fault, v judge.Violation, events map[string][]judge.Event) string {
	rows := make([]row, 0, len(v.Sections)+1)
	var text []string
	for _, id := range v.Sections {
		r := row{id, events[id]}
		for _, e := range r.events {
			switch e.Kind {
			case judge.Start:
				r.name += " " + string(e.Mode)
			case judge.Fault:
				if e.Text != continued {
					text = append(text, "! "+e.Text+"\n")
				}
			}
		}
		rows = append(rows, r)
	}
	others := row{name: "others"}
	for id, es := range events {
		if !slices.Contains(v.Sections, id) {
			others.events = append(others.events, es...)
		}
	}
	if v.Name == NeverFreed {
		rows = append(rows, others)
	}
	return fmt.Sprintf("%s: %s\n%s%s", f, v.Text, timeline(rows), strings.Join(text, ""))
}
