//go:build unix

package e2e

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/repolock/repolock/internal/test/proxy"
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
	// took is the time of the acquire or of the whole process, released the time of the release, and both their
	// sum for one lock.
	took, released, both times
	// Each acquire and each release.
	trips, requests [2]counts
	// cpu is of the whole process, or for each second of it.
	cpu times
	// memory and heap in bytes; goroutines at the end.
	memory, heap sizes
	goroutines   int
	// looks is the number of lstat(2) and the like.
	looks int
	// wakeups in each second, and hourly the seconds of CPU in each hour, of a held lock.
	wakeups, hourly float64
	// instructions are those in user mode, and faults the page faults.
	instructions, faults counts
}

// layout is the columns after the name, and their cells for a row. base is the first row of its group.
type layout struct {
	header []string
	cells  func(r, base row) []string
}

// costs has one ratio: of both, or else of the time, or else of the CPU.
var costs = layout{
	[]string{"n", "ms", "p90 ms", "release ms", "both ms", "×", "round trips", "requests", "CPU ms", "MiB", "heap MiB", "goroutines",
		"looks at names", "wake-ups a second", "CPU s an hour"},
	func(r, base row) []string {
		return []string{
			number(r.n), ms(r.took.median()), ms(r.took.p90()), ms(r.released.median()), ms(r.both.median()), against(r, base),
			pair(r.trips), pair(r.requests), ms(r.cpu.median()), millions(r.memory.median(), 1<<20), millions(r.heap.median(), 1<<20),
			number(r.goroutines), number(r.looks), decimal(r.wakeups), decimal(r.hourly),
		}
	},
}

func against(r, base row) string {
	for _, t := range [][2]times{{r.both, base.both}, {r.took, base.took}, {r.cpu, base.cpu}} {
		if len(t[0]) > 0 && len(t[1]) > 0 {
			return ratio(t[0].median(), t[1].median())
		}
	}
	return nothing
}

var starts = layout{
	[]string{"million instructions", "page faults", "CPU ms", "× flock", "ms"},
	func(r, flock row) []string {
		cpu := fmt.Sprintf("%.1f", float64(r.cpu.median())/float64(flock.cpu.median()))
		return []string{millions(r.instructions.median(), 1e6), number(r.faults.median()), ms(r.cpu.median()), cpu, ms(r.took.median())}
	},
}

// markdown returns the table in Markdown.
func (t table) markdown(l layout) string {
	n := len(l.header)
	lines := [][]string{append([]string{""}, l.header...), append([]string{":--"}, slices.Repeat([]string{"--:"}, n)...)}
	for _, g := range t {
		lines = append(lines, append([]string{"**" + g.name + "**"}, make([]string, n)...))
		for _, r := range g.rows {
			lines = append(lines, append([]string{r.name}, l.cells(r, g.rows[0])...))
		}
	}
	var b strings.Builder
	for _, line := range lines {
		b.WriteString("| " + strings.Join(line, " | ") + " |\n")
	}
	return b.String()
}

// separate returns a table of each group, without its empty columns.
func (t table) separate(l layout) string {
	var b strings.Builder
	for _, g := range t {
		var filled []int
		for i := range l.header {
			if slices.ContainsFunc(g.rows, func(r row) bool { return l.cells(r, g.rows[0])[i] != nothing }) {
				filled = append(filled, i)
			}
		}
		only := func(all []string) (some []string) {
			for _, i := range filled {
				some = append(some, all[i])
			}
			return some
		}
		narrow := layout{only(l.header), func(r, base row) []string { return only(l.cells(r, base)) }}
		b.WriteString(table{g}.markdown(narrow) + "\n")
	}
	return b.String()
}

const nothing = "–"

func decimal(v float64) string {
	if v == 0 {
		return nothing
	}
	return fmt.Sprintf("%.1f", v)
}

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

func millions[T int | int64](v, million T) string {
	if v == 0 {
		return nothing
	}
	return fmt.Sprintf("%.1f", float64(v)/float64(million))
}

func number(n int) string {
	if n == 0 {
		return nothing
	}
	return fmt.Sprint(n)
}

func ratio[T int | int64 | time.Duration](v, base T) string {
	switch r := float64(v) / float64(base); {
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

// sample is the measurements of one quantity.
type sample[T cmp.Ordered] []T

type (
	times  = sample[time.Duration]
	sizes  = sample[int64]
	counts = sample[int]
)

// median returns the middle value, or the smaller of two middle values. p90 returns a value that nine in ten
// don't exceed. Both are zero for an empty sample.
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

// lockPart returns the requests of a command for its locks until it deletes its own, and from
// then on.
func lockPart(l proxy.Log, locks string) (acquire, release proxy.Log) {
	for _, e := range l {
		switch {
		case !strings.HasPrefix(e.Key, locks):
		case e.Op == "delete" || len(release) > 0:
			release = append(release, e)
		default:
			acquire = append(acquire, e)
		}
	}
	return acquire, release
}

// lasted returns the time from the beginning of the first request to the end of the last one.
func lasted(l proxy.Log) time.Duration {
	first := slices.MinFunc(l, func(a, b proxy.Entry) int { return a.Start.Compare(b.Start) })
	last := slices.MaxFunc(l, func(a, b proxy.Entry) int { return a.End.Compare(b.End) })
	return last.End.Sub(first.Start)
}
