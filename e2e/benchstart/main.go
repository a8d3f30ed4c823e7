//go:build linux

// Benchstart measures what the start of repolock's processes costs, and prints a table in
// Markdown: see "The start" in docs/benchmarks.md. Valgrind counts the instructions, which are
// nearly the same on any machine and under any load. It fails where Valgrind or flock isn't there:
// make bench-start.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

func main() {
	quick := flag.Bool("quick", false, "repeat little, only to check that it works")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, *quick); err != nil {
		fmt.Fprintln(os.Stderr, "bench-start:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, quick bool) error {
	for _, program := range []string{"valgrind", "flock"} {
		if _, err := exec.LookPath(program); err != nil {
			return fmt.Errorf("%w: apt-get install valgrind util-linux", err)
		}
	}
	work, err := os.MkdirTemp("", "repolock-bench-start-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(work)
	all, sizes, err := subjects(ctx, work)
	if err != nil {
		return err
	}
	counts, turns := 3, 150
	if quick {
		counts, turns = 1, 3
	}
	for _, s := range all {
		if err := s.count(ctx, counts); err != nil {
			return err
		}
	}
	for range turns { // so that other load on the machine meets all of them
		for _, s := range all {
			if err := s.time(ctx); err != nil {
				return err
			}
		}
	}
	return print(all, sizes, turns)
}

// build is a way to build repolock.
type build struct {
	name  string
	env   []string
	flags []string
}

var builds = []build{
	{name: "as the packages have it", env: []string{"CGO_ENABLED=0"}, flags: []string{"-trimpath", "-ldflags=-s -w"}},
	{name: "as go install builds it"},
}

// size is that of a program.
type size struct {
	name  string
	bytes int64
}

// subjects builds the programs, and returns what is to be measured.
func subjects(ctx context.Context, work string) (all []*subject, sizes []size, err error) {
	empty := filepath.Join(work, "empty")
	source := empty + ".go"
	if err := os.WriteFile(source, []byte("package main\n\nfunc main() {}\n"), 0o600); err != nil {
		return nil, nil, err
	}
	if err := goBuild(ctx, build{}, empty, source); err != nil {
		return nil, nil, err
	}
	repo := filepath.Join(work, "repo")
	if err := os.Mkdir(repo, 0o700); err != nil {
		return nil, nil, err
	}
	all = []*subject{
		{name: "true", args: []string{"true"}, whole: true},
		{name: "flock FILE true", args: []string{"flock", filepath.Join(work, "file"), "true"}, whole: true},
		{name: "a Go program that does nothing", args: []string{empty}},
	}
	for i, b := range builds {
		path := filepath.Join(work, fmt.Sprint("repolock", i))
		if err := goBuild(ctx, b, path, "./cmd/repolock"); err != nil {
			return nil, nil, err
		}
		info, err := os.Stat(path)
		if err != nil {
			return nil, nil, err
		}
		sizes = append(sizes, size{b.name, info.Size()})
		all = append(all, processes(path, repo, b.name)...)
	}
	return all, sizes, nil
}

// processes are the processes of a repolock.
func processes(path, repo, build string) []*subject {
	run := []string{path, "run", "--quiet", "--repo", repo}
	return []*subject{
		{heading: "repolock " + build, name: "repolock version", args: []string{path, "version"}},
		{name: "repolock run --no-lock -- true", args: append(run, "--no-lock", "--", "true")},
		{name: "its guard, until its first order", args: []string{path, "__lock-guard"}},
		{name: "its starter, until its gate opens", args: []string{path}, env: []string{"__REPOLOCK_STARTER=0 1"}, fails: true},
		{name: "repolock run --shared -- true", args: append(run, "--shared", "--", "true"), whole: true},
		{name: "repolock run --exclusive -- true", args: append(run, "--exclusive", "--", "true"), whole: true},
	}
}

func goBuild(ctx context.Context, b build, to, what string) error {
	c := exec.CommandContext(ctx, "go", append(append([]string{"build", "-o", to}, b.flags...), what)...)
	c.Env = append(os.Environ(), b.env...)
	if out, err := c.CombinedOutput(); err != nil {
		return fmt.Errorf("building %s: %w: %s", what, err, out)
	}
	return nil
}

// subject is a command line, with the measurements of its process.
type subject struct {
	heading string // begins a group
	name    string
	args    []string
	env     []string
	fails   bool // its exit code isn't 0
	// whole is set if it isn't one process. The instructions of such a one aren't counted:
	// Valgrind can't follow an execve(2) of /proc/self/exe.
	whole bool

	instructions []float64
	faults       []float64 // of all its processes
	cpu, took    []float64 // in milliseconds
}

var total = regexp.MustCompile(`I +refs: +([0-9,]+)`)

// count counts the instructions in user mode.
func (s *subject) count(ctx context.Context, times int) error {
	if s.whole {
		return nil
	}
	for range times {
		args := append([]string{"--tool=cachegrind", "--cache-sim=no", "--cachegrind-out-file=/dev/null"}, s.args...)
		c := exec.CommandContext(ctx, "valgrind", args...)
		c.Env = append(os.Environ(), s.env...)
		out, err := c.CombinedOutput()
		if err := s.failure(err); err != nil {
			return fmt.Errorf("%w: %s", err, out)
		}
		found := total.FindSubmatch(out)
		if found == nil {
			// It has executed another program, as run --no-lock does.
			return s.countUntilExec(ctx, times)
		}
		n, err := strconv.ParseFloat(strings.ReplaceAll(string(found[1]), ",", ""), 64)
		if err != nil {
			return err
		}
		s.instructions = append(s.instructions, n)
	}
	return nil
}

// countUntilExec is count for a process that becomes another program. Valgrind counts nothing
// of it, unless it follows it, and then the other program alone. So this one must not be found.
func (s *subject) countUntilExec(ctx context.Context, times int) error {
	last := len(s.args) - 1
	if s.fails || s.args[last] != "true" {
		return errors.New(s.name + ": Valgrind counts no instructions")
	}
	other := *s
	other.fails, other.args = true, append(slices.Clone(s.args[:last]), "/nonexistent")
	err := other.count(ctx, times)
	s.instructions = other.instructions
	return err
}

// time runs it once.
func (s *subject) time(ctx context.Context) error {
	c := exec.CommandContext(ctx, s.args[0], s.args[1:]...)
	c.Env = append(os.Environ(), s.env...)
	start := time.Now()
	err := c.Run()
	took := time.Since(start)
	if err := s.failure(err); err != nil {
		return err
	}
	usage, ok := c.ProcessState.SysUsage().(*syscall.Rusage)
	if !ok {
		return errors.New("no usage")
	}
	s.faults = append(s.faults, float64(usage.Minflt+usage.Majflt))
	s.cpu = append(s.cpu, ms(c.ProcessState.UserTime()+c.ProcessState.SystemTime()))
	s.took = append(s.took, ms(took))
	return nil
}

// failure returns the error of a process that should have ended otherwise.
func (s *subject) failure(err error) error {
	_, exited := errors.AsType[*exec.ExitError](err)
	if s.fails && exited || !s.fails && err == nil {
		return nil
	}
	return fmt.Errorf("%s: it ended with %v", s.name, err)
}

func ms(d time.Duration) float64 { return d.Seconds() * 1000 }

// print prints the table.
func print(all []*subject, sizes []size, turns int) error {
	var b strings.Builder
	fmt.Fprintf(&b, "%s/%s, %d CPUs; %s; medians of %d in turns.\n\n", runtime.GOOS, runtime.GOARCH, runtime.NumCPU(), runtime.Version(), turns)
	for _, s := range sizes {
		fmt.Fprintf(&b, "- repolock %s: %.1f MB\n", s.name, float64(s.bytes)/1e6)
	}
	b.WriteString("\n| | million instructions | page faults | CPU ms | ms |\n| :-- | --: | --: | --: | --: |\n")
	for _, s := range all {
		if s.heading != "" {
			fmt.Fprintf(&b, "| **%s** | | | | |\n", s.heading)
		}
		fmt.Fprintf(&b, "| %s | %s | %s | %s | %s |\n", s.name, figure("%.2f", s.instructions, 1e6), figure("%.0f", s.faults, 1),
			figure("%.1f", s.cpu, 1), figure("%.1f", s.took, 1))
	}
	_, err := io.WriteString(os.Stdout, b.String())
	return err
}

// figure returns the median in a unit, or a dash if there is none.
func figure(format string, all []float64, unit float64) string {
	if len(all) == 0 {
		return "–"
	}
	sorted := slices.Sorted(slices.Values(all))
	return fmt.Sprintf(format, sorted[len(sorted)/2]/unit)
}
