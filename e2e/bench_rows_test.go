//go:build linux && programs

package e2e

import (
	"errors"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/repolock/repolock/internal/test/assert"
)

// printTables prints the machine, the versions of the measured programs, one a line, and the tables.
func printTables(versions, tables string) {
	programs := strings.ReplaceAll(strings.TrimSpace(versions), "\n", "; ")
	fmt.Printf("\n%s/%s, %d CPUs; %s; %s.\n%s", runtime.GOOS, runtime.GOARCH, runtime.NumCPU(), runtime.Version(), programs, tables)
}

// repository returns a directory with a file that isn't a lock's. In an empty repository an acquire takes longer, because
// it could become Cloudstic's.
func repository(b *testing.B) string {
	dir := b.TempDir()
	assert.OK(b, os.Mkdir(filepath.Join(dir, "keys"), 0o700))
	assert.OK(b, os.WriteFile(filepath.Join(dir, "keys", "0123"), []byte("key"), 0o600))
	return dir
}

// subject is a row of a table. measure measures it once.
type subject struct {
	name    string
	measure func(row)
}

// inTurns measures subjects in turn, so that other load on the machine affects all of them.
func inTurns(times int, all ...subject) (rows []row) {
	for _, s := range all {
		rows = append(rows, newRow(s.name))
	}
	for range times {
		for i, s := range all {
			s.measure(rows[i])
		}
	}
	return rows
}

// row is the measurements of a subject, by the header of their column.
type row struct {
	name string
	of   map[string][]float64
}

func newRow(name string) row { return row{name, map[string][]float64{}} }

func (r row) add(what string, v float64) { r.of[what] = append(r.of[what], v) }

func (r row) took(what string, d time.Duration) { r.add(what, float64(d)/float64(time.Millisecond)) }

// quantile returns the smallest value that so many percent of the measurements don't exceed.
func (r row) quantile(what string, percent int) float64 {
	s := r.of[what]
	return slices.Sorted(slices.Values(s))[(len(s)*percent+99)/100-1]
}

// p returns a quantile for a table.
func (r row) p(what string, percent int) string {
	if len(r.of[what]) == 0 {
		return nothing
	}
	return number(r.quantile(what, percent))
}

const nothing = "–"

// number has three digits or all of an integer.
func number(v float64) string {
	switch {
	case v == math.Trunc(v) || math.Abs(v) >= 100:
		return fmt.Sprintf("%.0f", v)
	case math.Abs(v) >= 10:
		return fmt.Sprintf("%.1f", v)
	default:
		return fmt.Sprintf("%.2f", v)
	}
}

// column is a column of all tables. first is the first row of the table.
type column struct {
	header string
	cell   func(r, first row) string
}

var allColumns = []column{
	{"n", func(r, _ row) string {
		if n := max(len(r.of["ms"]), len(r.of["both ms"]), len(r.of["hand-over ms"])); n > 0 {
			return fmt.Sprint(n)
		}
		return nothing
	}},
	median("million instructions"), median("page faults"), median("ms"),
	{"p90 ms", func(r, _ row) string { return r.p("ms", 90) }},
	median("release ms"), median("both ms"), {"×", ratio}, perStep("round trips"), perStep("requests"), median("CPU ms"), median("MiB"),
	median("heap MiB"), median("goroutines"), median("looks at names"), median("wake-ups a second"), median("CPU s an hour"),
	handOver("p50 ms", 50), handOver("p99 ms", 99), handOver("worst ms", 100), median("ms beyond flock"), median("drain s"),
	median("requests in all"), median("gets"), median("lists"), median("puts"), median("deletes"),
	median("1 client"), median("4 clients"), median("16 clients"), median("48 clients"), median("100 clients"),
}

// handOver is a quantile of the times from a release to the next acquisition.
func handOver(header string, percent int) column {
	return column{header, func(r, _ row) string { return r.p("hand-over ms", percent) }}
}

func median(what string) column {
	return column{what, func(r, _ row) string { return r.p(what, 50) }}
}

// ratio compares the CPU time, or else the time of both, or else that of the acquire.
func ratio(r, first row) string {
	for _, what := range []string{"CPU ms", "both ms", "ms"} {
		if len(r.of[what]) > 0 && len(first.of[what]) > 0 {
			return fmt.Sprintf("%.2f", r.quantile(what, 50)/first.quantile(what, 50))
		}
	}
	return nothing
}

// perStep has the costs of an acquire and of a release: "2 + 1". Those of a release are measured as "release ...".
func perStep(what string) column {
	return column{what, func(r, _ row) string {
		acquire, release := r.spread(what), r.spread("release "+what)
		if release == nothing {
			return acquire
		}
		return acquire + " + " + release
	}}
}

// spread returns the one value that all measurements have, or their range.
func (r row) spread(what string) string {
	s := r.of[what]
	switch {
	case len(s) == 0:
		return nothing
	case slices.Min(s) == slices.Max(s):
		return number(s[0])
	default:
		return number(slices.Min(s)) + "-" + number(slices.Max(s))
	}
}

// markdown returns a table in Markdown, without its empty columns.
func markdown(title string, rows []row) string {
	header, rule := "| |", "|---|"
	lines := make([]string, len(rows))
	for _, c := range allColumns {
		cells, filled := make([]string, len(rows)), false
		for i, r := range rows {
			cells[i] = c.cell(r, rows[0])
			filled = filled || cells[i] != nothing
		}
		if !filled {
			continue
		}
		header, rule = header+" "+c.header+" |", rule+"---:|"
		for i := range rows {
			lines[i] += " " + cells[i] + " |"
		}
	}
	var b strings.Builder
	fmt.Fprintf(&b, "\n%s:\n\n%s\n%s\n", title, header, rule)
	for i, r := range rows {
		fmt.Fprintf(&b, "| %s |%s\n", r.name, lines[i])
	}
	return b.String()
}

// commandLine is a command line that is measured.
type commandLine struct {
	args  []string
	env   []string
	fails bool // its exit code isn't 0
}

func (p commandLine) command(before ...string) *exec.Cmd {
	args := slices.Concat(before, p.args)
	c := exec.Command(args[0], args[1:]...)
	c.Env = append(os.Environ(), p.env...)
	return c
}

// ended checks how the process has ended.
func (p commandLine) ended(b *testing.B, err error, out []byte) {
	b.Helper()
	if _, exited := errors.AsType[*exec.ExitError](err); p.fails != exited || !exited && err != nil {
		b.Fatalf("%v: it ended with %v: %s", p.args, err, out)
	}
}

// time runs it once. Its output isn't read, which would take time.
func (p commandLine) time(b *testing.B, r row) {
	b.Helper()
	c := p.command()
	start := time.Now()
	err := c.Run()
	r.took("ms", time.Since(start))
	p.ended(b, err, nil)
	r.took("CPU ms", c.ProcessState.UserTime()+c.ProcessState.SystemTime())
	usage := c.ProcessState.SysUsage().(*syscall.Rusage)
	r.add("page faults", float64(usage.Minflt+usage.Majflt))
}

// timed is a subject whose whole run is timed.
func timed(b *testing.B, name string, args ...string) subject {
	return subject{name, func(r row) { commandLine{args: args}.time(b, r) }}
}

// asPackaged builds repolock as the packages have it.
const asPackaged = "CGO_ENABLED=0 go build -trimpath -ldflags='-s -w'"

func build(b *testing.B, path, how string) {
	b.Helper()
	in(b, "..", how+" -o "+path+" ./cmd/repolock")
}
