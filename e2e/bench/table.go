//go:build linux

package main

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf8"
)

// table is made of groups. A ratio is one to the first row of its group.
type table []group

type group struct {
	name string
	rows []row
}

// row is the measurements of one subject. A missing one is zero, and shown as a dash.
type row struct {
	name string
	// n is the number of measurements.
	n int
	// took is the time of the acquire or of the whole process, released that of
	// the release, and both of one and the same lock.
	took, released, both times
	// Each acquire and each release.
	trips, requests [2]counts
	// cpu is of the whole process, or for each second of it.
	cpu times
	// memory in bytes; goroutines at the end.
	memory     sizes
	goroutines int
}

var header = []string{
	"", "n", "ms", "p90 ms", "×", "release ms", "both ms", "×", "round trips", "×", "requests", "×", "CPU ms", "×", "MiB", "×", "goroutines",
}

// cells returns the cells of a row of a group whose first row is base.
func (r row) cells(base row) []string {
	return []string{
		r.name, count(r.n),
		ms(r.took.median()), ms(r.took.p90()), ratio(float64(r.took.median()), float64(base.took.median())),
		ms(r.released.median()), ms(r.both.median()), ratio(float64(r.both.median()), float64(base.both.median())),
		pair(r.trips), ratio(sum(r.trips), sum(base.trips)),
		pair(r.requests), ratio(sum(r.requests), sum(base.requests)),
		ms(r.cpu.median()), ratio(float64(r.cpu.median()), float64(base.cpu.median())),
		mib(r.memory.median()), ratio(float64(r.memory.median()), float64(base.memory.median())),
		count(r.goroutines),
	}
}

// markdown is the table, its columns aligned for the terminal, too.
func (t table) markdown() string {
	rule := []string{":--"}
	for range header[1:] {
		rule = append(rule, "--:")
	}
	lines := [][]string{header, rule}
	for _, g := range t {
		lines = append(lines, append([]string{"**" + g.name + "**"}, make([]string, len(header)-1)...))
		for _, r := range g.rows {
			lines = append(lines, r.cells(g.rows[0]))
		}
	}
	width := make([]int, len(header))
	for _, line := range lines {
		for i, cell := range line {
			width[i] = max(width[i], utf8.RuneCountInString(cell))
		}
	}
	var b strings.Builder
	for _, line := range lines {
		for i, cell := range line {
			space := strings.Repeat(" ", width[i]-utf8.RuneCountInString(cell))
			if i == 0 {
				cell, space = cell+space, ""
			}
			b.WriteString("| " + space + cell + " ")
		}
		b.WriteString("|\n")
	}
	return b.String()
}

const nothing = "–"

func ms(d time.Duration) string {
	switch v := float64(d) / float64(time.Millisecond); {
	case d == 0:
		return nothing
	case v < 10:
		return fmt.Sprintf("%.2f", v)
	case v < 100:
		return fmt.Sprintf("%.1f", v)
	default:
		return fmt.Sprintf("%.0f", v)
	}
}

func mib(bytes int64) string {
	if bytes == 0 {
		return nothing
	}
	return fmt.Sprintf("%.1f", float64(bytes)/(1<<20))
}

func count(n int) string {
	if n == 0 {
		return nothing
	}
	return fmt.Sprint(n)
}

func ratio(v, base float64) string {
	switch r := v / base; {
	case v == 0 || base == 0:
		return nothing
	case r < 10:
		return fmt.Sprintf("%.2f", r)
	default:
		return fmt.Sprintf("%.0f", r)
	}
}

// pair returns the costs of an acquire and of a release: "2 + 1".
func pair(c [2]counts) string {
	switch {
	case len(c[0]) == 0:
		return nothing
	case len(c[1]) == 0:
		return c[0].String()
	default:
		return c[0].String() + " + " + c[1].String()
	}
}

func sum(c [2]counts) float64 { return float64(c[0].median() + c[1].median()) }

// sample is the measurements of one quantity.
type sample[T cmp.Ordered] []T

type (
	times  = sample[time.Duration]
	sizes  = sample[int64]
	counts = sample[int]
)

// median returns the middle value, or the smaller of two in the middle, so that it was
// measured; p90 returns a value that nine in ten don't exceed. An empty sample has zero for
// both.
func (s sample[T]) median() T { return s.quantile(50) }
func (s sample[T]) p90() T    { return s.quantile(90) }

func (s sample[T]) quantile(percent int) (v T) {
	if len(s) == 0 {
		return v
	}
	return slices.Sorted(slices.Values(s))[(len(s)*percent+99)/100-1]
}

// String returns the one value that all have, or their range.
func (s sample[T]) String() string {
	least, most := slices.Min(s), slices.Max(s)
	if least == most {
		return fmt.Sprint(least)
	}
	return fmt.Sprintf("%v-%v", least, most)
}
