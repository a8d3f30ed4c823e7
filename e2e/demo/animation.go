//go:build linux

package main

import (
	"bytes"
	"cmp"
	"fmt"
	"html"
	"slices"
	"strings"
	"time"
)

// The drawing's measures, in pixels.
const (
	letter  = 8.43 // of a monospace font of 14 pixels
	line    = 18
	margin  = 12
	caption = 26
	width   = 2*margin + columns*letter
)

// pause is the longest time in which nothing changes: longer ones are cut.
const pause = 900 * time.Millisecond

// last is how long the last screens stay.
const last = 5 * time.Second

// shown is a row of the drawing with a text that it has for a time.
type shown struct {
	y        int
	text     string
	from, to time.Duration
}

// animation draws the terminals one below the other, as they were. It begins anew at its end. A
// program that doesn't animate shows the last screens.
func animation(terminals ...*terminal) ([]byte, error) {
	clock := newClock(terminals)
	var b bytes.Buffer
	body, y := &bytes.Buffer{}, 0
	for _, t := range terminals {
		y += caption
		fmt.Fprintf(body, "<text class=\"c\" x=\"%d\" y=\"%d\">%s</text>\n", margin, y-8, t.host)
		rows := 0
		for _, p := range t.film {
			rows = max(rows, len(slices.DeleteFunc(slices.Clone(p.rows), func(r string) bool { return r == "" })))
		}
		fmt.Fprintf(body, "<rect x=\"1\" y=\"%d\" width=\"%.0f\" height=\"%d\" rx=\"6\" fill=\"#f6f8fa\"/>\n", y, width-2, rows*line+margin)
		for _, s := range t.shown(clock, y) {
			s.draw(body, clock.total, prompt(t.host))
		}
		y += rows*line + margin
	}
	y += margin
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %.0f %d" width="%.0f" height="%d" fill="#1f2328" font-family="monospace" font-size="14" xml:space="preserve">
<title>Two terminals under repolock</title>
<desc>%s</desc>
<style>
svg{font:14px ui-monospace,SFMono-Regular,Menlo,Consolas,"DejaVu Sans Mono",monospace}
text{white-space:pre;fill:#1f2328}rect{fill:#f6f8fa;stroke:#d1d9e0}.c{fill:#59636e}.p{fill:#1a7f37}
@media(prefers-color-scheme:dark){text{fill:#e6edf3}rect{fill:#161b22;stroke:#3d444d}.c{fill:#9198a1}.p{fill:#3fb950}}
</style>
`, width, y, width, y, html.EscapeString(words(terminals)))
	b.Write(body.Bytes())
	b.WriteString("</svg>\n")
	return b.Bytes(), nil
}

// words are the commands of the terminals, for readers who don't see the drawing.
func words(terminals []*terminal) string {
	var said []string
	for _, t := range terminals {
		for _, row := range t.now() {
			if row != "" && row != strings.TrimSpace(prompt(t.host)) {
				said = append(said, row)
			}
		}
	}
	return strings.Join(said, "\n")
}

// clock is the time of the drawing, whose pauses are cut.
type clock struct {
	ticks []time.Time
	total time.Duration
}

func newClock(terminals []*terminal) clock {
	var c clock
	for _, t := range terminals {
		for _, p := range t.film {
			c.ticks = append(c.ticks, p.at)
		}
	}
	slices.SortFunc(c.ticks, time.Time.Compare)
	c.total = c.at(c.ticks[len(c.ticks)-1]) + last
	return c
}

// at returns when the drawing shows what happened at a time.
func (c clock) at(t time.Time) (d time.Duration) {
	for i, tick := range c.ticks[1:] {
		if tick.After(t) {
			break
		}
		d += min(tick.Sub(c.ticks[i]), pause)
	}
	return d
}

// shown returns the rows of a terminal, in their order in time.
func (t *terminal) shown(c clock, top int) []shown {
	t.mu.Lock()
	defer t.mu.Unlock()
	var all []shown
	for i := range t.film[0].rows {
		begun := shown{}
		for _, p := range t.film {
			if p.rows[i] == begun.text {
				continue
			}
			begun.to = c.at(p.at)
			all = append(all, begun)
			begun = shown{y: top + (i+1)*line, text: p.rows[i], from: begun.to}
		}
		begun.to = c.total
		all = append(all, begun)
	}
	// What is shown for less than a twentieth of a second was being drawn.
	all = slices.DeleteFunc(all, func(s shown) bool { return s.text == "" || s.to-s.from < 50*time.Millisecond })
	slices.SortStableFunc(all, func(a, b shown) int { return cmp.Compare(a.from, b.from) })
	return all
}

func (s shown) draw(b *bytes.Buffer, total time.Duration, prompt string) {
	at := func(d time.Duration) string {
		return strings.TrimPrefix(fmt.Sprintf("%.4f", d.Seconds()/total.Seconds()), "0")
	}
	text := html.EscapeString(s.text)
	if after, is := strings.CutPrefix(s.text+" ", prompt); is {
		text = `<tspan class="p">` + prompt + `</tspan>` + html.EscapeString(strings.TrimSpace(after))
	}
	values, times, hidden := "hidden;visible;hidden", "0;"+at(s.from)+";"+at(s.to), ` visibility="hidden"`
	switch {
	case s.from == 0 && s.to == total:
		fmt.Fprintf(b, "<text x=\"%d\" y=\"%d\">%s</text>\n", margin, s.y, text)
		return
	case s.from == 0:
		values, times = "visible;hidden", "0;"+at(s.to)
	case s.to == total:
		values, times, hidden = "hidden;visible", "0;"+at(s.from), ""
	}
	fmt.Fprintf(b, "<text x=\"%d\" y=\"%d\"%s>%s<animate attributeName=\"visibility\" dur=\"%.1fs\" repeatCount=\"indefinite\" calcMode=\"discrete\" values=\"%s\" keyTimes=\"%s\"/></text>\n",
		margin, s.y, hidden, text, total.Seconds(), values, times)
}
