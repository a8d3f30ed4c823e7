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

// Measures of the drawing, in pixels.
const (
	left    = 80 // left edge of the lanes: space for their names
	width   = 1000
	right   = 40 // right of the lanes: space for the last time
	lane    = 34
	above   = 13 // above a bar: space for its name
	bar     = 15
	top     = 52
	axis    = 28
	heading = 20  // height of the name of a place
	radius  = 5   // of a dot
	narrow  = 2.0 // smallest width of a bar
	gap     = 1.0 // narrow bars with a smaller gap are drawn as one
	letter  = 6.2 // rough width of a letter
)

// These limits bound the size of a drawing.
const (
	maxLanes  = 60
	maxShapes = 1000
	maxName   = 40 // characters
)

// Timeline is the layout of a history's drawing. If locks are too close together to be distinguished, they are one bar.
// If there are too many bars, the oldest locks are omitted.
type Timeline struct {
	// Left is the number of omitted locks. They were requested before Begin.
	Left  int
	Begin time.Time // when the first drawn lock was requested

	from, to time.Time
	bars     []*mark
	dots     []*dot
	several  bool     // there are several places
	groups   []*group // by place and mode
}

// mark is a bar in the drawing: a lock, or several locks with the same name.
type mark struct {
	*Span  // the first lock
	count  int
	lost   int       // number of locks that were lost
	until  time.Time // the end of the last lock
	x0, x1 float64
	group  *group
	lane   int
	name   string
	nameX  float64
	named  bool // the name is drawn
	stops  [][2]float64
	narrow bool
}

// dot is a dot in the drawing: a removal, or several.
type dot struct {
	Removal // the first removal
	count   int
	x       float64
}

// group has the lanes of one place and mode.
type group struct {
	place, mode string
	lanes       []*track
	y           int // y of the first lane
}

// track is a lane to which bars are being added.
type track struct {
	end     float64 // right end of the last bar
	name    string  // the last name that is drawn in it
	nameEnd float64
}

// Timeline returns the layout of the history.
func (h History) Timeline() *Timeline {
	for keep := len(h.Spans); ; keep -= keep/4 + 1 {
		t := &Timeline{Left: len(h.Spans) - keep, several: h.Several()}
		if t.lay(h.Spans[t.Left:], h.Removals) || keep <= 1 {
			return t
		}
	}
}

// lay lays out the locks and the removals, and reports whether they are within the limits. If locks are omitted, it
// also omits the removals before the first lock.
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

// drawnUntil returns the end of a lock. If a stop of its command ended later, because the lock was lost, it returns the
// end of the stop.
func (s *Span) drawnUntil() time.Time {
	until := s.Until()
	if n := len(s.Stops); n > 0 && s.Stops[n-1].To.After(until) {
		return s.Stops[n-1].To
	}
	return until
}

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
		m.group = t.group(s.Place, s.Mode)
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

// stop makes the stops of a bar. If stops are too close together to be distinguished, they are drawn as one.
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

// dot makes the dots. If removals are too close together to be distinguished, they are one dot.
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

// group returns the lanes for a place and a mode. If there is only one place, it ignores the place, because some
// records don't have it.
func (t *Timeline) group(place, mode string) *group {
	want := &group{mode: "shared"}
	if mode == exclusive {
		want.mode = mode
	}
	if t.several {
		want.place = place
	}
	at, found := slices.BinarySearchFunc(t.groups, want, func(g, want *group) int {
		return cmp.Or(cmp.Compare(g.place, want.place), cmp.Compare(g.mode, want.mode))
	})
	if !found {
		t.groups = slices.Insert(t.groups, at, want)
	}
	return t.groups[at]
}

// heads reports whether the name of a place is drawn above a group.
func (t *Timeline) heads(i int) bool {
	return t.several && (i == 0 || t.groups[i-1].place != t.groups[i].place)
}

// stack sets the vertical positions of the groups, and returns the position below the last one. If there is only one
// place, each mode has a lane, even an empty one.
func (t *Timeline) stack() int {
	if !t.several {
		t.group("", "exclusive")
		t.group("", "shared")
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

// findLanes assigns each bar to a lane, and reports whether maxLanes are enough.
func (t *Timeline) findLanes() bool {
	lanes := 0
	for _, m := range t.bars {
		g := m.group
		m.nameX = max(left, min(m.x0, left+width-letter*float64(utf8.RuneCountInString(m.name))))
		if m.lane = g.laneFor(m); m.lane == len(g.lanes) {
			g.lanes = append(g.lanes, &track{end: left, nameEnd: left})
			lanes++
		}
		l := g.lanes[m.lane]
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

// laneFor returns the lane for a bar. It prefers a lane whose last name equals the bar's. Otherwise it takes the first
// lane with space for the bar and its name, or a new one.
func (g *group) laneFor(m *mark) int {
	found := len(g.lanes)
	for i, l := range g.lanes {
		switch {
		case m.x0 < l.end:
		case l.name == m.name:
			return i
		case found == len(g.lanes) && m.nameX >= l.nameEnd:
			found = i
		}
	}
	return found
}

// name returns the host and the job of a lock. If there is no job, it returns the operation instead.
func (s *Span) name() string {
	name := cut(cmp.Or(s.Host, "?")) + ": " + cut(cmp.Or(s.Job, s.Operation, "?"))
	if utf8.RuneCountInString(name) > maxName {
		return string([]rune(name)[:maxName-1]) + "…"
	}
	return name
}

type drawing struct {
	*Timeline
	strings.Builder
}

// WriteSVG writes the drawing. Each place has lanes of exclusive locks, and lanes of shared locks below them. A grey
// bar before a lock is the wait for it, and a cross is a refused lock.
func (t *Timeline) WriteSVG(w io.Writer) error {
	d := &drawing{Timeline: t}
	end := t.stack()
	height := end + lane + axis
	d.print(`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" width="%d" height="%d" font-family="sans-serif" font-size="12">`,
		left+width+right, height, left+width+right, height)
	d.print(`<style>
rect{stroke:#fff;stroke-width:.5}.paper{fill:#fff}text{fill:#1f2328}.exclusive{fill:#b5541c}.shared{fill:#2b6ca3}.wait{fill:#999;opacity:.45}.stop{fill:#f2c230}.lost{stroke:#c00;stroke-width:3}
.unknown{opacity:.5}.several{stroke-width:3;stroke-dasharray:1 2}.refused{stroke:#c00;stroke-width:2;fill:none}.removal{fill:#555}.axis{stroke:#bbb}
.name{font-size:11px;fill:#444}
@media(prefers-color-scheme:dark){rect{stroke:#0d1117}.paper{fill:#0d1117}text{fill:#e6edf3}.exclusive{fill:#d9722f}.shared{fill:#4c93d0}.removal{fill:#9198a1}.axis{stroke:#3d444d}.name{fill:#9198a1}.lost,.refused{stroke:#ff6b6b}}
</style><rect class="paper" width="100%%" height="100%%"/>`)
	d.print(`<text x="%d" y="18">%s to %s; grey: waited; yellow: stopped; dashed: several locks; pale: perhaps still held; red line: lost; red cross: refused</text>`,
		left, stamp(d.from), stamp(d.to))
	if t.Left > 0 {
		d.print(`<text x="%d" y="36">%d older locks aren't drawn. repolock history --svg draws them with --until %s</text>`, left, t.Left, t.Begin.UTC().Format(time.RFC3339))
	}
	d.axis(height)
	for i, g := range t.groups {
		if t.heads(i) {
			d.print(`<text x="4" y="%d" font-weight="bold">%s</text>`, g.y-5, tail(cmp.Or(g.place, "?")))
		}
		d.print(`<text x="4" y="%d">%s</text>`, g.y+lane-6, g.mode)
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
			title += fmt.Sprintf("\nand %d more", m.count-1)
		}
		d.print(`<circle class="removal" cx="%.1f" cy="%.1f" r="%d"><title>%s</title></circle>`, m.x, y+lane/2, radius, title)
	}
	d.print(`</svg>`)
	_, err := io.WriteString(w, d.String())
	return err
}

// maxTitle is the number of bytes to which each text of a title is cut, because other programs write locks and logs
// too.
const maxTitle = 100

func cut(s string) string { return text.Cut(s, maxTitle) }

// tail cuts the beginning of a long path, because the end distinguishes repositories.
func tail(s string) string {
	if len(s) <= maxTitle {
		return s
	}
	return "…" + strings.ToValidUTF8(s[len(s)-maxTitle:], "")
}

// title returns the text that a viewer shows when the mouse is over a bar.
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
	if !m.Held.IsZero() {
		if wait := m.Waited().Round(time.Second); wait > 0 {
			title += "\nwaited " + wait.String()
		}
		held, known := m.HeldFor()
		title += map[bool]string{true: "\nheld ", false: "\nheld at least "}[known] + held.Round(time.Millisecond).String()
	}
	if d := m.StoppedFor(); d > 0 {
		title += "\nstopped " + d.Round(time.Millisecond).String()
	}
	return title + "\n" + cmp.Or(cut(m.Outcome), NoEnd)
}

// mark draws a bar and its name in the lane at y.
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

func (d *drawing) held(m *mark, y float64) {
	class := m.group.mode
	from, to := d.x(m.Held), d.x(m.Until())
	if m.count > 1 {
		class += " several"
		from, to = m.x0, m.x1
	} else if m.End.IsZero() { // pale after the last sign of the lock
		seen := max(d.x(m.Seen), from)
		d.rect(class+" unknown", seen, to, y)
		to = seen
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

// axis labels the time axis with at most ten times, at round intervals.
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

// print formats a part of the drawing. It escapes all texts, because other programs write locks and logs too.
func (d *drawing) print(format string, args ...any) {
	for i, a := range args {
		if s, ok := a.(string); ok {
			args[i] = xmlText(s)
		}
	}
	fmt.Fprintf(d, format+"\n", args...)
}

func stamp(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05Z") }

// xmlText escapes a text for an element or an attribute.
func xmlText(s string) string {
	return html.EscapeString(strings.Map(func(r rune) rune {
		if r != '\n' && !unicode.IsPrint(r) { // XML forbids some of these characters, and others reverse a text
			return '\ufffd'
		}
		return r
	}, strings.ToValidUTF8(s, "\ufffd")))
}
