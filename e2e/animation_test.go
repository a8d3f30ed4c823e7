//go:build unix

package e2e

import (
	"bytes"
	"cmp"
	"encoding/xml"
	"fmt"
	"html"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/repolock/repolock/internal/test/assert"
)

// film is what the terminal of a host has shown.
type film struct {
	host     string
	mu       sync.Mutex
	pictures []picture
}

// picture is what a terminal shows from a time on.
type picture struct {
	at   time.Time
	rows []string
}

// now returns the rows of the screen.
func (f *film) now() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.pictures) == 0 {
		return nil
	}
	return f.pictures[len(f.pictures)-1].rows
}

// prompt is that of a host's shell.
func prompt(host string) string { return host + "$ " }

const columns = 80

// The drawing's measures, in pixels.
const (
	letter  = 8.43 // of a monospace font of 14 pixels
	height  = 18
	margin  = 12
	caption = 26
	width   = 2*margin + columns*letter
)

// pause is the longest time in which nothing changes: longer ones are cut.
const pause = 900 * time.Millisecond

// lastStay is how long the last screens stay.
const lastStay = 5 * time.Second

// shown is a row of the drawing with a text that it has for a time.
type shown struct {
	y        int
	text     string
	from, to time.Duration
}

// animation draws the terminals one below the other, as they were. It begins anew at its end. A
// program that doesn't animate shows the last screens.
func animation(films ...*film) []byte {
	clock := newReel(films)
	var b bytes.Buffer
	body, y := &bytes.Buffer{}, 0
	for _, t := range films {
		y += caption
		fmt.Fprintf(body, "<text class=\"c\" x=\"%d\" y=\"%d\">%s</text>\n", margin, y-8, t.host)
		rows := 0
		for _, p := range t.pictures {
			rows = max(rows, len(slices.DeleteFunc(slices.Clone(p.rows), func(r string) bool { return r == "" })))
		}
		fmt.Fprintf(body, "<rect x=\"1\" y=\"%d\" width=\"%.0f\" height=\"%d\" rx=\"6\" fill=\"#f6f8fa\"/>\n", y, width-2, rows*height+margin)
		for _, s := range t.shown(clock, y) {
			s.draw(body, clock.total, prompt(t.host))
		}
		y += rows*height + margin
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
`, width, y, width, y, html.EscapeString(words(films)))
	b.Write(body.Bytes())
	b.WriteString("</svg>\n")
	return b.Bytes()
}

// words are the commands of the terminals, for readers who don't see the drawing.
func words(films []*film) string {
	var said []string
	for _, t := range films {
		for _, row := range t.now() {
			if row != "" && row != strings.TrimSpace(prompt(t.host)) {
				said = append(said, row)
			}
		}
	}
	return strings.Join(said, "\n")
}

// reel is the time of the drawing, whose pauses are cut.
type reel struct {
	ticks []time.Time
	total time.Duration
}

func newReel(films []*film) reel {
	var c reel
	for _, t := range films {
		for _, p := range t.pictures {
			c.ticks = append(c.ticks, p.at)
		}
	}
	slices.SortFunc(c.ticks, time.Time.Compare)
	c.total = c.at(c.ticks[len(c.ticks)-1]) + lastStay
	return c
}

// at returns when the drawing shows what happened at a time.
func (c reel) at(t time.Time) (d time.Duration) {
	for i, tick := range c.ticks[1:] {
		if tick.After(t) {
			break
		}
		d += min(tick.Sub(c.ticks[i]), pause)
	}
	return d
}

// shown returns the rows of a terminal, in their order in time.
func (t *film) shown(c reel, top int) []shown {
	t.mu.Lock()
	defer t.mu.Unlock()
	var all []shown
	for i := range t.pictures[0].rows {
		begun := shown{}
		for _, p := range t.pictures {
			if p.rows[i] == begun.text {
				continue
			}
			begun.to = c.at(p.at)
			all = append(all, begun)
			begun = shown{y: top + (i+1)*height, text: p.rows[i], from: begun.to}
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

// TestAnimation: at each time the drawing shows the rows that the terminals had, and a program
// that doesn't animate shows the last ones.
func TestAnimation(t *testing.T) {
	begin := time.Now()
	at := func(s float64, rows ...string) picture {
		return picture{begin.Add(time.Duration(s * float64(time.Second))), append(rows, "", "", "")[:3]}
	}
	one := []picture{
		at(0, "a$"), at(0.5, "a$ <one>"), at(0.8, "a$ <one>", "waiting 1s"), at(1.4, "a$ <one>", "waiting 2s"),
		at(1.42, "a$ <one>"), at(1.44, "a$ <one>", "done", "a$"), at(60, "done", "a$ exit"),
	}
	other := []picture{at(0, "b$"), at(0.6, "b$ two")}
	drawn := animation(&film{host: "a", pictures: one}, &film{host: "b", pictures: other})
	// The time between the last two pictures is cut.
	total := 1440*time.Millisecond + pause + lastStay
	for _, c := range []struct {
		at   time.Duration
		want string
	}{
		{0, "a$|b$"}, {510 * time.Millisecond, "a$ <one>|b$"}, {700 * time.Millisecond, "a$ <one>|b$ two"},
		{time.Second, "a$ <one>|waiting 1s|b$ two"}, {1500 * time.Millisecond, "a$ <one>|done|a$|b$ two"},
		{1440*time.Millisecond + pause + 10*time.Millisecond, "done|a$ exit|b$ two"}, {-1, "done|a$ exit|b$ two"},
	} {
		assert.Equal(t, shownAt(t, drawn, float64(c.at)/float64(total)), c.want, "at %v", c.at)
	}
	if !strings.Contains(string(drawn), fmt.Sprintf(`dur="%.1fs"`, total.Seconds())) {
		t.Errorf("it doesn't last %v:\n%s", total, drawn)
	}
}

// shownAt returns the rows that a drawing shows at a part of its time: a negative one if it
// isn't animated.
func shownAt(t *testing.T, drawn []byte, part float64) string {
	t.Helper()
	var svg struct {
		Rows []struct {
			Class      string `xml:"class,attr"`
			Y          int    `xml:"y,attr"`
			Visibility string `xml:"visibility,attr"`
			Prompt     string `xml:"tspan"`
			Text       string `xml:",chardata"`
			Animate    *struct {
				Values string `xml:"values,attr"`
				Times  string `xml:"keyTimes,attr"`
			} `xml:"animate"`
		} `xml:"text"`
	}
	assert.OK(t, xml.Unmarshal(drawn, &svg))
	rows := map[int]string{}
	for _, row := range svg.Rows {
		visible := row.Visibility != "hidden"
		if row.Animate != nil && part >= 0 {
			for i, from := range strings.Split(row.Animate.Times, ";") {
				begins, err := strconv.ParseFloat(from, 64)
				assert.OK(t, err)
				if begins <= part {
					visible = strings.Split(row.Animate.Values, ";")[i] == "visible"
				}
			}
		}
		if row.Class == "" && visible {
			if rows[row.Y] != "" {
				t.Errorf("two rows at once: %q, %q", rows[row.Y], row.Prompt+row.Text)
			}
			rows[row.Y] = strings.TrimSpace(row.Prompt + row.Text)
		}
	}
	var shown []string
	for _, y := range slices.Sorted(maps.Keys(rows)) {
		shown = append(shown, rows[y])
	}
	return strings.Join(shown, "|")
}
