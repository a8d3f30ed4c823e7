//go:build linux

package main

import (
	"strings"
	"testing"
	"time"
)

func TestQuantiles(t *testing.T) {
	for _, c := range []struct {
		s           counts
		median, p90 int
		text        string
	}{
		{counts{7}, 7, 7, "7"},
		{counts{2, 1}, 1, 2, "1-2"},
		{counts{3, 1, 2}, 2, 3, "1-3"},
		{counts{10, 9, 8, 7, 6, 5, 4, 3, 2, 1}, 5, 9, "1-10"},
	} {
		if m, p, text := c.s.median(), c.s.p90(), c.s.String(); m != c.median || p != c.p90 || text != c.text {
			t.Errorf("%d: median %d, p90 %d, %q; want %d, %d, %q", []int(c.s), m, p, text, c.median, c.p90, c.text)
		}
	}
}

// TestTable: a missing measurement is a dash, and never a number.
func TestTable(t *testing.T) {
	got := table{{"on a disk", []row{
		{name: "flock", n: 3, took: times{time.Millisecond, 2 * time.Millisecond, 3 * time.Millisecond}, memory: sizes{1 << 20}},
		{name: "ours", n: 1, took: times{5 * time.Millisecond}, trips: [2]counts{{2}, {1}}, requests: [2]counts{{2, 3}, {1}}},
	}}}.markdown()
	for _, want := range []string{
		"flock 3 2.00 3.00 1.00 – – – – – – – – – 1.0 1.00 –",
		"ours 1 5.00 5.00 2.50 – – – 2 + 1 – 2-3 + 1 – – – – – –",
	} {
		plain := strings.Join(strings.Fields(strings.ReplaceAll(got, "|", " ")), " ")
		if !strings.Contains(plain, want) {
			t.Errorf("%q isn't in\n%s", want, got)
		}
	}
}
