package main

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/repolock/repolock/internal/test/rounds"
)

// silence is the longest time without output.
const silence = 8 * time.Second

// report turns the events of go test into what is printed.
type report struct {
	out      io.Writer
	start    time.Time
	printed  time.Time // last
	packages map[string]*running
	ended    int // packages
	passed   int
	failed   int
	skipped  []string
	left     int      // tests that the short suite leaves out
	names    []string // of the tests that failed, and of the packages that did without one
	slow     []slow
}

// slow is a test, without its subtests' names, and how long it ran beside others.
type slow struct {
	name string
	took time.Duration
}

// running is a package, of which tests run.
type running struct {
	since  time.Time
	output strings.Builder // of the package itself
	tests  map[string]*test
	failed bool // one of its tests did
}

// test is one that hasn't ended.
type test struct {
	output strings.Builder
	since  time.Time
	paused bool // it waits for its turn to run beside others
}

func newReport(out io.Writer, now time.Time) *report {
	return &report{out: out, start: now, printed: now, packages: map[string]*running{}}
}

func (r *report) print(now time.Time, text string) {
	if text != "" {
		r.printed = now
		fmt.Fprint(r.out, text)
	}
}

// event takes one event.
func (r *report) event(e event, now time.Time) {
	if e.Package == "" { // output of the build
		r.print(now, e.Output)
		return
	}
	p := r.packages[e.Package]
	if p == nil {
		p = &running{since: now, tests: map[string]*test{}}
		r.packages[e.Package] = p
	}
	if e.Test == "" {
		r.ofPackage(p, e, now)
	} else {
		r.ofTest(p, e, now)
	}
}

func (r *report) ofPackage(p *running, e event, now time.Time) {
	switch e.Action {
	case "output":
		p.output.WriteString(e.Output)
	case "pass", "skip", "fail":
		if e.Action == "fail" {
			for _, name := range slices.Sorted(maps.Keys(p.tests)) { // tests that hang, or have crashed
				r.print(now, p.tests[name].output.String())
			}
			if !p.failed {
				r.fail(e) // none of its tests did: it wasn't built, or has crashed
			}
			r.print(now, p.output.String())
		} else {
			r.print(now, result(p.output.String()))
		}
		r.ended++
		delete(r.packages, e.Package)
	}
}

// result is the last line of a package's output, with a newline.
func result(output string) string {
	output = strings.TrimSuffix(output, "\n")
	if output == "" {
		return ""
	}
	return output[strings.LastIndexByte(output, '\n')+1:] + "\n"
}

func (r *report) ofTest(p *running, e event, now time.Time) {
	t := p.tests[e.Test]
	if t == nil {
		t = &test{since: now}
		p.tests[e.Test] = t
	}
	switch e.Action {
	case "output":
		if !strings.HasPrefix(e.Output, "=== ") {
			t.output.WriteString(e.Output)
		}
		return
	case "pause":
		t.paused = true
		return
	case "cont":
		t.paused, t.since = false, now
		return
	case "pass":
		r.passed++
		r.time(e)
		p.output.WriteString(after(t.output.String(), "--- PASS: "+e.Test+" "))
	case "skip":
		if strings.Contains(t.output.String(), rounds.Left) {
			r.left++
		} else {
			r.skipped = append(r.skipped, e.Package+" "+e.Test)
		}
	case "fail":
		r.fail(e)
		r.time(e)
		p.failed = true
		r.print(now, t.output.String())
	default:
		return
	}
	delete(p.tests, e.Test)
}

func (r *report) fail(e event) {
	r.failed++
	r.names = append(r.names, strings.TrimSpace(short(e.Package)+" "+e.Test))
}

func (r *report) time(e event) {
	if took := time.Duration(e.Elapsed * float64(time.Second)); took >= time.Second && !strings.Contains(e.Test, "/") {
		r.slow = append(r.slow, slow{short(e.Package) + " " + e.Test, took})
	}
}

// after returns the text after the line that begins so. If the test program prints after the
// end of a test, as in a crash, go test counts the output as that test's.
func after(output, begins string) string {
	_, rest, _ := strings.Cut("\n"+output, "\n"+begins)
	_, rest, _ = strings.Cut(rest, "\n")
	return rest
}

// shown is how many tests a line of progress names.
const shown = 3

// tick says what is running if nothing was printed for long.
func (r *report) tick(now time.Time) {
	if now.Sub(r.printed) < silence {
		return
	}
	type line struct {
		since time.Time
		name  string
	}
	var lines []line
	for name, p := range r.packages {
		if len(p.tests) == 0 { // before its first test, or after its last
			lines = append(lines, line{p.since, short(name)})
		}
		for inner, t := range p.tests {
			if !t.paused && !p.has(inner+"/") {
				lines = append(lines, line{t.since, short(name) + " " + inner})
			}
		}
	}
	slices.SortFunc(lines, func(a, b line) int {
		if c := a.since.Compare(b.since); c != 0 {
			return c
		}
		return strings.Compare(a.name, b.name)
	})
	var names []string
	for _, l := range lines[:min(shown, len(lines))] {
		names = append(names, fmt.Sprintf("%s (%s)", l.name, now.Sub(l.since).Round(time.Second)))
	}
	if more := len(lines) - shown; more > 0 {
		names = append(names, fmt.Sprint(more, " more"))
	}
	doing := "building"
	if len(names) > 0 {
		doing = "running " + strings.Join(names, ", ")
	}
	r.print(now, fmt.Sprintf("still testing, %s: %d packages done, %d tests passed, %d failed; %s\n", now.Sub(r.start).Round(time.Second), r.ended, r.passed, r.failed, doing))
}

// has reports whether a test whose name begins so hasn't ended.
func (p *running) has(prefix string) bool {
	for name := range p.tests {
		if strings.HasPrefix(name, prefix) {
			return true
		}
	}
	return false
}

// short is a package's name within the module.
func short(name string) string {
	if _, rest, ok := strings.Cut(name, "/repolock/repolock/"); ok {
		return rest
	}
	return name
}

// slowest is how many tests the summary names as such.
const slowest = 8

// end prints the summary, of which the last lines name the tests that failed. cpu is what go test, the
// compiler and the tests took of the processors together.
func (r *report) end(now time.Time, cpu time.Duration) {
	slices.SortStableFunc(r.slow, func(a, b slow) int { return cmp.Compare(b.took, a.took) })
	for i, t := range r.slow[:min(slowest, len(r.slow))] {
		fmt.Fprintf(r.out, "slowest %d: %s, %s\n", i+1, t.name, t.took.Round(100*time.Millisecond))
	}
	for _, name := range r.skipped {
		fmt.Fprintf(r.out, "skipped: %s\n", name)
	}
	for name, p := range r.packages { // go test was ended itself
		r.fail(event{Package: name})
		fmt.Fprintf(r.out, "not ended: %s\n%s", name, p.output.String())
	}
	if r.left > 0 {
		fmt.Fprintf(r.out, "%d left to the long suite: make e2e\n", r.left)
	}
	fmt.Fprintf(r.out, "%s, %s of the processors\n", now.Sub(r.start).Round(time.Second), cpu.Round(time.Second))
	for _, name := range r.names {
		fmt.Fprintf(r.out, "failed: %s\n", name)
	}
	fmt.Fprintf(r.out, "%d passed, %d failed\n", r.passed, r.failed)
}
