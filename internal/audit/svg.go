package audit

import (
	"cmp"
	"fmt"
	"html"
	"io"
	"strings"
	"time"
	"unicode"

	"github.com/repolock/repolock/internal/text"
)

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
