package audit

import (
	"cmp"
	"fmt"
	"html"
	"io"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/repolock/repolock/internal/text"
)

// The drawing's measures, in pixels.
const (
	left    = 80 // of the lanes: room for their names
	width   = 1000
	right   = 40 // of the lanes: room for the last time
	lane    = 34
	above   = 13 // a bar's name
	bar     = 15
	top     = 52
	axis    = 28
	heading = 20  // the name of a place
	radius  = 5   // of a dot
	narrow  = 2.0 // the least width of a time
	gap     = 1.0 // bars that are closer are drawn as one, if they are narrow
	letter  = 6.2 // the width of one, roughly
)

// Limits of a drawing. They bound its size.
const (
	maxLanes  = 60
	maxShapes = 1000
	maxName   = 40 // characters
)

// Timeline is a history that is laid out to be drawn. Its size is bounded: locks that are too
// close to tell apart are one bar, and the newest locks are drawn if there are too many.
type Timeline struct {
	// Left is the number of locks that aren't drawn. They were asked for before Begin.
	Left  int
	Begin time.Time

	from, to time.Time
	bars     []*mark
	dots     []*dot
	several  bool     // places
	groups   []*group // by place, the exclusive locks of each first
	steps    int      // of the search for lanes
}

// mark is a lock in a drawing, or several locks of one host and job.
type mark struct {
	*Span  // the first
	count  int
	lost   int
	until  time.Time // of the last
	x0, x1 float64
	group  *group
	lane   int
	name   string
	nameX  float64
	named  bool // the name is drawn
	stops  [][2]float64
	narrow bool
}

// dot is a removal, or several.
type dot struct {
	Removal // the first
	count   int
	x       float64
}

// Timeline lays a history out.
func (h History) Timeline() *Timeline {
	for keep := len(h.Spans); ; keep -= keep/4 + 1 {
		t := &Timeline{Left: len(h.Spans) - keep, several: h.Several()}
		if t.lay(h.Spans[t.Left:], h.Removals) || keep <= 1 {
			return t
		}
	}
}

// lay lays out these locks, and the removals in their time. It reports whether they are within
// the limits.
func (t *Timeline) lay(spans []*Span, removals []Removal) bool {
	for _, s := range spans {
		t.include(s.Asked)
		t.include(s.drawnUntil())
	}
	if t.Left > 0 {
		t.Begin = spans[0].Asked
		removals = slices.DeleteFunc(slices.Clone(removals), func(m Removal) bool { return m.At.Before(t.Begin) })
	}
	for _, m := range removals {
		t.include(m.At)
	}
	if !t.to.After(t.from) {
		t.to = t.from.Add(time.Second)
	}
	t.mark(spans)
	t.dot(removals)
	return t.shapes() <= maxShapes && t.findLanes()
}

func (t *Timeline) include(at time.Time) {
	if t.from.IsZero() || at.Before(t.from) {
		t.from = at
	}
	if at.After(t.to) {
		t.to = at
	}
}

func (t *Timeline) x(at time.Time) float64 {
	x := width * float64(at.Sub(t.from)) / float64(t.to.Sub(t.from))
	return left + min(max(x, 0), width)
}

// drawnUntil returns the end of a lock, or of its command's last stop, which can be after a loss.
func (s *Span) drawnUntil() time.Time {
	until := s.Until()
	if n := len(s.Stops); n > 0 && s.Stops[n-1].To.After(until) {
		return s.Stops[n-1].To
	}
	return until
}

// mark makes bars of locks, which are in the order of their begin.
func (t *Timeline) mark(spans []*Span) {
	type kind struct {
		group   *group
		refused bool
		name    string
	}
	last := map[kind]*mark{}
	for _, s := range spans {
		x0, end := t.x(s.Asked), t.x(s.drawnUntil())
		m := &mark{Span: s, count: 1, until: s.drawnUntil(), x0: x0, x1: max(end, x0+narrow), name: s.name(), narrow: end-x0 <= narrow}
		m.group = t.group(s.Place, s.Mode == "exclusive")
		if s.Lost {
			m.lost = 1
		}
		k := kind{m.group, s.Held.IsZero(), m.name}
		if before := last[k]; before != nil && before.narrow && m.narrow && m.x0-before.x1 < gap {
			before.count++
			before.lost += m.lost
			before.x1 = max(before.x1, m.x1)
			if m.until.After(before.until) {
				before.until = m.until
			}
			continue
		}
		last[k] = m
		t.bars = append(t.bars, m)
		t.stop(m)
	}
}

// stop makes the stops of a bar. Stops that are too close to tell apart are one.
func (t *Timeline) stop(m *mark) {
	for _, s := range m.Stops {
		to := s.To
		if to.IsZero() {
			to = m.until
		}
		a := t.x(s.From)
		b := max(t.x(to), a+narrow)
		if n := len(m.stops); n > 0 && a-m.stops[n-1][1] < gap {
			m.stops[n-1][1] = max(m.stops[n-1][1], b)
			continue
		}
		m.stops = append(m.stops, [2]float64{a, b})
	}
}

// dot makes dots of removals.
func (t *Timeline) dot(removals []Removal) {
	for _, r := range removals {
		x := t.x(r.At)
		if n := len(t.dots); n > 0 && x-t.dots[n-1].x < 2*radius {
			t.dots[n-1].count++
			continue
		}
		t.dots = append(t.dots, &dot{r, 1, x})
	}
}

func (t *Timeline) shapes() (n int) {
	for _, m := range t.bars {
		n += 1 + len(m.stops)
	}
	return n
}

// group is the lanes of one place and mode.
type group struct {
	place     string
	exclusive bool
	lanes     []*track
	y         int // of the first lane
}

// group returns the lanes for a place and a mode. If there is one place, it is "": some records can lack it.
func (t *Timeline) group(place string, exclusive bool) *group {
	if !t.several {
		place = ""
	}
	want := &group{place: place, exclusive: exclusive}
	at, found := slices.BinarySearchFunc(t.groups, want, func(g, want *group) int {
		return cmp.Or(cmp.Compare(g.place, want.place), cmp.Compare(g.mode(), want.mode()))
	})
	if !found {
		t.groups = slices.Insert(t.groups, at, want)
	}
	return t.groups[at]
}

func (g *group) mode() string {
	return map[bool]string{true: "exclusive", false: "shared"}[g.exclusive]
}

// heads reports whether the name of a place is above a group.
func (t *Timeline) heads(i int) bool {
	return t.several && (i == 0 || t.groups[i-1].place != t.groups[i].place)
}

// stack assigns the groups their height, and returns where the last ends. A place alone has a lane of each mode,
// even an empty one.
func (t *Timeline) stack() int {
	if !t.several {
		t.group("", true)
		t.group("", false)
	}
	y := top
	for i, g := range t.groups {
		if t.heads(i) {
			y += heading
		}
		g.y = y
		y += max(len(g.lanes), 1) * lane
	}
	return y
}

// track is a lane that is being filled.
type track struct {
	end     float64
	name    string
	nameEnd float64
}

// takes reports whether a bar fits into a lane. Its name does, or the bar before has the same.
func (l *track) takes(m *mark) bool {
	return m.x0 >= l.end && (m.nameX >= l.nameEnd || l.name == m.name)
}

// findLanes assigns each bar to the first lane of its group that has room, before all to one that has bars
// of its name. It reports whether there are enough lanes.
func (t *Timeline) findLanes() bool {
	lanes := 0
	for _, m := range t.bars {
		m.nameX = max(left, min(m.x0, left+width-letter*float64(utf8.RuneCountInString(m.name))))
		if m.lane = t.laneFor(m, m.group.lanes); m.lane == len(m.group.lanes) {
			m.group.lanes = append(m.group.lanes, &track{end: left, nameEnd: left})
			lanes++
		}
		l := m.group.lanes[m.lane]
		l.end = m.x1
		if m.named = m.nameX >= l.nameEnd; m.named {
			l.name, l.nameEnd = m.name, m.nameX+letter*float64(utf8.RuneCountInString(m.name)+1)
		}
		if lanes > maxLanes {
			return false
		}
	}
	return true
}

// laneFor returns the lane that takes a bar, or the number of lanes if none does.
func (t *Timeline) laneFor(m *mark, tracks []*track) int {
	found := len(tracks)
	for i, l := range tracks {
		t.steps++
		switch {
		case !l.takes(m):
		case l.name == m.name:
			return i
		case found == len(tracks):
			found = i
		}
	}
	return found
}

// name returns the host and the job of a lock, or the operation of one without a job.
func (s *Span) name() string {
	name := cut(cmp.Or(s.Host, "?")) + ": " + cut(cmp.Or(s.Job, s.Operation, "?"))
	if utf8.RuneCountInString(name) > maxName {
		return string([]rune(name)[:maxName-1]) + "…"
	}
	return name
}

// drawing is a timeline that is being drawn.
type drawing struct {
	*Timeline
	strings.Builder
}

// WriteSVG draws a timeline: lanes of exclusive locks, and lanes of shared locks below, for each
// place by itself. The wait for a lock is drawn before it, and a refused lock is a cross.
func (t *Timeline) WriteSVG(w io.Writer) error {
	d := &drawing{Timeline: t}
	end := t.stack()
	height := end + lane + axis
	d.print(`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" width="%d" height="%d" font-family="sans-serif" font-size="12">`,
		left+width+right, height, left+width+right, height)
	d.print(`<style>
rect{stroke:#fff;stroke-width:.5}.exclusive{fill:#b5541c}.shared{fill:#2b6ca3}.wait{fill:#999;opacity:.45}.stop{fill:#f2c230}.lost{stroke:#c00;stroke-width:3}
.unknown{opacity:.5}.several{stroke-width:3;stroke-dasharray:1 2}.refused{stroke:#c00;stroke-width:2;fill:none}.removal{fill:#555}.axis{stroke:#bbb}
.name{font-size:11px;fill:#444}
</style><rect width="100%%" height="100%%" fill="#fff"/>`)
	d.print(`<text x="%d" y="18">%s to %s; grey: waited; yellow: stopped; dashed: several locks; pale: no end in the log; red line: lost; red cross: refused</text>`,
		left, stamp(d.from), stamp(d.to))
	if t.Left > 0 {
		d.print(`<text x="%d" y="36">%d older locks aren't drawn. repolock history --svg draws them with --until %s</text>`, left, t.Left, t.Begin.UTC().Format(time.RFC3339))
	}
	d.axis(height)
	for i, g := range t.groups {
		if t.heads(i) {
			d.print(`<text x="4" y="%d" font-weight="bold">%s</text>`, g.y-5, tail(cmp.Or(g.place, "?")))
		}
		d.print(`<text x="4" y="%d">%s</text>`, g.y+lane-6, g.mode())
	}
	for _, m := range t.bars {
		d.mark(m, float64(m.group.y+m.lane*lane))
	}
	y := float64(end)
	if len(t.dots) > 0 {
		d.print(`<text x="4" y="%.0f">removed</text>`, y+lane-6)
	}
	for _, m := range t.dots {
		title := stamp(m.At) + ": " + cut(m.Who+" "+m.What+" "+m.Of)
		if t.several {
			title += "\n" + tail(m.Place)
		}
		if m.count > 1 {
			title += fmt.Sprintf("\nand %d others", m.count-1)
		}
		d.print(`<circle class="removal" cx="%.1f" cy="%.1f" r="%d"><title>%s</title></circle>`, m.x, y+lane/2, radius, title)
	}
	d.print(`</svg>`)
	_, err := io.WriteString(w, d.String())
	return err
}

// maxTitle bounds each text of a title: other programs write locks and logs.
const maxTitle = 100

func cut(s string) string { return text.Cut(s, maxTitle) }

// tail shortens a path at its beginning: the ends of paths distinguish repositories.
func tail(s string) string {
	if len(s) <= maxTitle {
		return s
	}
	return "…" + strings.ToValidUTF8(s[len(s)-maxTitle:], "")
}

// title is what a viewer shows of a bar.
func (m *mark) title() string {
	title := cut(m.Operation)
	if m.Job != "" {
		title += " " + cut(m.Job)
	}
	title += ", " + cut(m.Who) + "\n" + stamp(m.Asked)
	if m.count > 1 {
		title = fmt.Sprintf("%d locks, the first: %s\nthe last until %s", m.count, title, stamp(m.until))
		if m.lost > 0 {
			title += fmt.Sprintf("\nlost: %d", m.lost)
		}
		return title
	}
	if wait := m.Waited().Round(time.Second); !m.Held.IsZero() && wait > 0 {
		title += "\nwaited " + wait.String()
	}
	if !m.Held.IsZero() {
		title += "\nheld " + m.Until().Sub(m.Held).Round(time.Millisecond).String()
	}
	if d := m.StoppedFor(); d > 0 {
		title += "\nstopped " + d.Round(time.Millisecond).String()
	}
	return title + "\n" + cmp.Or(cut(m.Outcome), "no end in the log")
}

// mark draws a bar with its name above, in a lane.
func (d *drawing) mark(m *mark, y float64) {
	d.print(`<g><title>%s</title>`, m.title())
	if m.named {
		d.print(`<text class="name" x="%.1f" y="%.1f">%s</text>`, m.nameX, y+above-2, m.name)
	}
	y += above
	if m.count == 1 && m.Waited() > 0 {
		d.rect("wait", m.x0, d.x(m.Asked.Add(m.Waited())), y)
	}
	if m.Held.IsZero() {
		d.print(`<path class="refused" d="M%.1f %.1fl8 8m0 -8l-8 8"/>`, m.x1-4, y+bar/2-4)
	} else {
		d.held(m, y)
	}
	d.print(`</g>`)
}

// held draws the time in which a lock was held.
func (d *drawing) held(m *mark, y float64) {
	class := m.group.mode()
	from, to := d.x(m.Held), d.x(m.Until())
	if m.count > 1 {
		class += " several"
		from, to = m.x0, m.x1
	} else if m.End.IsZero() {
		class += " unknown"
	}
	d.rect(class, from, to, y)
	for _, stop := range m.stops {
		d.rect("stop", stop[0], stop[1], y)
	}
	if m.lost > 0 {
		d.print(`<path class="lost" d="M%.1f %.1fv%d"/>`, to, y, bar)
	}
}

func (d *drawing) rect(class string, from, to, y float64) {
	d.print(`<rect class="%s" x="%.1f" y="%.1f" width="%.1f" height="%d"/>`, class, from, y, max(to-from, narrow), bar)
}

// axis marks times at round distances.
func (d *drawing) axis(height int) {
	step := time.Second
	for _, next := range []time.Duration{5 * time.Second, 15 * time.Second, time.Minute, 5 * time.Minute, 15 * time.Minute, time.Hour, 6 * time.Hour, 24 * time.Hour} {
		if d.to.Sub(d.from)/step > 10 {
			step = next
		}
	}
	for d.to.Sub(d.from)/step > 10 {
		step *= 2
	}
	layout := "15:04:05"
	if step >= 24*time.Hour {
		layout = "2006-01-02"
	}
	for t := d.from.Truncate(step).Add(step); !t.After(d.to); t = t.Add(step) {
		d.print(`<path class="axis" d="M%.1f %dV%d"/><text x="%.1f" y="%d" text-anchor="middle">%s</text>`,
			d.x(t), top-6, height-axis, d.x(t), height-10, t.UTC().Format(layout))
	}
}

// print escapes every text: other programs write locks and logs.
func (d *drawing) print(format string, args ...any) {
	for i, a := range args {
		if s, ok := a.(string); ok {
			args[i] = xmlText(s)
		}
	}
	fmt.Fprintf(d, format+"\n", args...)
}

func stamp(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05Z") }

// xmlText escapes a text for an element or an attribute of the drawing.
func xmlText(s string) string {
	return html.EscapeString(strings.Map(func(r rune) rune {
		if r != '\n' && !unicode.IsPrint(r) { // XML has no such character, or it turns a text around
			return '\ufffd'
		}
		return r
	}, strings.ToValidUTF8(s, "\ufffd")))
}
