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
)

// The drawing's measures, in pixels.
const (
	left   = 110 // of the lanes: room for their names
	width  = 1000
	lane   = 22
	bar    = 16
	top    = 34
	axis   = 28
	narrow = 2.0 // the least width of a time
)

// drawing is a timeline that is being drawn.
type drawing struct {
	w        io.Writer
	from, to time.Time
	err      error
}

// WriteSVG draws a history: lanes of exclusive locks, and lanes of shared locks below. The
// wait for a lock is drawn before it, and a refused lock is a cross.
func (h History) WriteSVG(w io.Writer) error {
	d := &drawing{w: w}
	for _, s := range h.Spans {
		d.include(s.Asked)
		d.include(s.Until())
	}
	for _, m := range h.Removals {
		d.include(m.At)
	}
	if !d.to.After(d.from) {
		d.to = d.from.Add(time.Second)
	}
	rows, exclusive, shared := d.rows(h.Spans)
	height := top + (exclusive+shared)*lane + lane + axis
	d.print(`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" width="%d" height="%d" font-family="sans-serif" font-size="12">`,
		left+width+20, height, left+width+20, height)
	d.print(`<style>
.exclusive{fill:#b5541c}.shared{fill:#2b6ca3}.wait{fill:#999;opacity:.45}.stop{fill:#f2c230}.lost{stroke:#c00;stroke-width:3}
.unknown{opacity:.5}.refused{stroke:#c00;stroke-width:2;fill:none}.removal{fill:#555}.axis{stroke:#bbb}
</style><rect width="100%%" height="100%%" fill="#fff"/>`)
	d.print(`<text x="%d" y="18">%s to %s; grey: waited; yellow: stopped; pale: no end in the log; red line: lost; red cross: refused</text>`, left, stamp(d.from), stamp(d.to))
	d.axis(height)
	d.print(`<text x="4" y="%d">exclusive</text>`, top+bar-3)
	d.print(`<text x="4" y="%d">shared</text>`, top+exclusive*lane+bar-3)
	for _, s := range h.Spans {
		row := rows[s]
		if s.Mode != "exclusive" {
			row += exclusive
		}
		d.span(s, float64(top+row*lane))
	}
	y := float64(top + (exclusive+shared)*lane)
	if len(h.Removals) > 0 {
		d.print(`<text x="4" y="%.0f">removed</text>`, y+bar-3)
	}
	for _, m := range h.Removals {
		d.print(`<circle class="removal" cx="%.1f" cy="%.1f" r="5"><title>%s</title></circle>`,
			d.x(m.At), y+bar/2, stamp(m.At)+": "+m.Who+" "+m.What+" "+m.Of)
	}
	d.print(`</svg>`)
	return d.err
}

func (d *drawing) include(t time.Time) {
	if d.from.IsZero() || t.Before(d.from) {
		d.from = t
	}
	if t.After(d.to) {
		d.to = t
	}
}

// rows assigns each lock to the first lane of its mode that has room, and returns how many
// lanes the modes have.
func (d *drawing) rows(spans []*Span) (rows map[*Span]int, exclusive, shared int) {
	rows = map[*Span]int{}
	ends := map[bool][]time.Time{} // of the lanes; true: of exclusive locks
	for _, s := range spans {
		mode := s.Mode == "exclusive"
		row := slices.IndexFunc(ends[mode], func(end time.Time) bool { return !s.Asked.Before(end) })
		if row < 0 {
			row = len(ends[mode])
			ends[mode] = append(ends[mode], time.Time{})
		}
		// A time can be drawn wider than it is.
		ends[mode][row] = s.Until().Add(time.Duration(2 * narrow / width * float64(d.to.Sub(d.from))))
		rows[s] = row
	}
	return rows, max(len(ends[true]), 1), max(len(ends[false]), 1)
}

func (d *drawing) span(s *Span, y float64) {
	title := s.Operation + ", " + s.Who + "\n" + stamp(s.Asked)
	if wait := s.Held.Sub(s.Asked).Round(time.Second); !s.Held.IsZero() && wait > 0 {
		title += "\nwaited " + wait.String()
	}
	if !s.Held.IsZero() {
		title += "\nheld " + s.Until().Sub(s.Held).Round(time.Millisecond).String()
	}
	title += "\n" + cmp.Or(s.Outcome, "no end in the log")
	d.print(`<g><title>%s</title>`, title)
	if s.Waited() > 0 {
		d.rect("wait", s.Asked, s.Asked.Add(s.Waited()), y)
	}
	if s.Held.IsZero() {
		x, m := d.x(s.End), y+bar/2
		d.print(`<path class="refused" d="M%.1f %.1fl8 8m0 -8l-8 8"/>`, x-4, m-4)
	} else {
		class := s.Mode
		if s.End.IsZero() {
			class += " unknown"
		}
		d.rect(class, s.Held, s.Until(), y)
		for _, stop := range s.Stops {
			to := stop.To
			if to.IsZero() {
				to = s.Until()
			}
			d.rect("stop", stop.From, to, y)
		}
		if s.Lost {
			x := d.x(s.Until())
			d.print(`<path class="lost" d="M%.1f %.1fv%d"/>`, x, y, bar)
		}
	}
	d.print(`</g>`)
}

func (d *drawing) rect(class string, from, to time.Time, y float64) {
	d.print(`<rect class="%s" x="%.1f" y="%.1f" width="%.1f" height="%d"/>`, class, d.x(from), y, max(d.x(to)-d.x(from), narrow), bar)
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

func (d *drawing) x(t time.Time) float64 {
	return left + width*float64(t.Sub(d.from))/float64(d.to.Sub(d.from))
}

// print escapes every text: other programs write locks and logs.
func (d *drawing) print(format string, args ...any) {
	for i, a := range args {
		if s, ok := a.(string); ok {
			args[i] = xmlText(s)
		}
	}
	if d.err == nil {
		_, d.err = fmt.Fprintf(d.w, format+"\n", args...)
	}
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
