//go:build linux

package main

import (
	"encoding/xml"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// TestAnimation: at each time the drawing shows the rows that the terminals had, and a program
// that doesn't animate shows the last ones.
func TestAnimation(t *testing.T) {
	begin := time.Now()
	at := func(s float64, rows ...string) picture {
		return picture{begin.Add(time.Duration(s * float64(time.Second))), append(rows, "", "", "")[:3]}
	}
	film := []picture{
		at(0, "a$"), at(0.5, "a$ <one>"), at(0.8, "a$ <one>", "waiting 1s"), at(1.4, "a$ <one>", "waiting 2s"),
		at(1.42, "a$ <one>"), at(1.44, "a$ <one>", "done", "a$"), at(60, "done", "a$ exit"),
	}
	other := []picture{at(0, "b$"), at(0.6, "b$ two")}
	host := func(name string, film []picture) *terminal {
		return &terminal{host: name, film: film}
	}
	drawn, err := animation(host("a", film), host("b", other))
	if err != nil {
		t.Fatal(err)
	}
	// The time between the last two pictures is cut.
	total := 1440*time.Millisecond + pause + last
	for _, c := range []struct {
		at   time.Duration
		want string
	}{
		{0, "a$|b$"}, {510 * time.Millisecond, "a$ <one>|b$"}, {700 * time.Millisecond, "a$ <one>|b$ two"},
		{time.Second, "a$ <one>|waiting 1s|b$ two"}, {1500 * time.Millisecond, "a$ <one>|done|a$|b$ two"},
		{1440*time.Millisecond + pause + 10*time.Millisecond, "done|a$ exit|b$ two"}, {-1, "done|a$ exit|b$ two"},
	} {
		if got := shownAt(t, drawn, float64(c.at)/float64(total)); got != c.want {
			t.Errorf("at %v: %q, want %q", c.at, got, c.want)
		}
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
	if err := xml.Unmarshal(drawn, &svg); err != nil {
		t.Fatalf("%v\n%s", err, drawn)
	}
	rows := map[int]string{}
	for _, row := range svg.Rows {
		visible := row.Visibility != "hidden"
		if row.Animate != nil && part >= 0 {
			for i, from := range strings.Split(row.Animate.Times, ";") {
				if begins, err := strconv.ParseFloat(from, 64); err != nil {
					t.Fatal(err)
				} else if begins <= part {
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
