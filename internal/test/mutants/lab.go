package main

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/repolock/repolock/internal/parallel"
	"github.com/repolock/repolock/internal/procstat"
)

// lab compiles mutants and runs tests on them.
type lab struct {
	dir      string
	mutants  map[int]mutant
	overlays map[int]string
	tries    atomic.Int64

	mu       sync.Mutex
	programs map[string]*program
	sound    map[finder]*sound
}

// sound is whether a finder finds nothing in the program without mutants, which is tried once, and how long
// that took.
type sound struct {
	try  sync.Once
	err  error
	took time.Duration
}

// limit is how long a mutant may take until it counts as hung.
func (s *sound) limit() time.Duration { return max(15*time.Second, 8*s.took) }

// program is a test binary, which is built once.
type program struct {
	build sync.Once
	path  string
	err   error
}

func newLab(mutants map[int]mutant) (*lab, error) {
	dir, err := os.MkdirTemp("", "mutants")
	if err != nil {
		return nil, err
	}
	l := &lab{dir: dir, mutants: mutants, programs: map[string]*program{}, sound: map[finder]*sound{}}
	if l.overlays, err = overlays(".", dir, mutants); err != nil {
		l.close()
		return nil, err
	}
	return l, nil
}

func (l *lab) close() { _ = os.RemoveAll(l.dir) }

// program returns the test binary of a package, with the mutants of an overlay.
func (l *lab) program(overlay, pkg, tags string) (string, error) {
	key := strings.Join([]string{overlay, pkg, tags}, " ")
	l.mu.Lock()
	p := l.programs[key]
	if p == nil {
		p = &program{path: filepath.Join(l.dir, fmt.Sprintf("%d.test", len(l.programs)))}
		l.programs[key] = p
	}
	l.mu.Unlock()
	p.build.Do(func() {
		cmd := exec.Command("go", "test", "-c", "-vet=off", "-overlay="+overlay, "-tags="+tags, "-ldflags=-s -w", "-o="+p.path, pkg)
		if out, err := cmd.CombinedOutput(); err != nil {
			p.err = fmt.Errorf("%v: %w\n%s", cmd, err, out)
		}
	})
	return p.path, p.err
}

var (
	found  = regexp.MustCompile(`found: seed (\d+): (\w+)`)
	failed = regexp.MustCompile(`(?m)^\s*--- FAIL: (\S+)`)
	hung   = regexp.MustCompile(`(?m)^panic: test timed out after \S+\n\s+running tests:\n\s+(\S+)`)
	ran    = regexp.MustCompile(`(?m)^=== RUN +(\S+)`)
)

// try runs tests of a package on a mutant, or on none if n is 0. It returns their output, and whether they
// pass.
func (l *lab) try(n int, overlay string, f finder, limit time.Duration, args ...string) (string, bool, error) {
	binary, err := l.program(overlay, f.pkg, f.tags)
	if err != nil {
		return "", false, err
	}
	cmd := exec.Command(binary, append([]string{"-test.run=" + f.run, "-test.v", fmt.Sprint("-test.timeout=", limit)}, args...)...)
	cmd.Dir = f.pkg
	mark := fmt.Sprintf("MUTANT_TRY=%s/%d/", l.dir, l.tries.Add(1))
	cmd.Env = append(os.Environ(), mark, fmt.Sprint("MUTANT_ON=", n), "GOFLAGS=-overlay="+overlay) // the tests can build the program, too
	cmd.WaitDelay = time.Second                                                                    // for processes that have its output open
	out, err := cmd.CombinedOutput()
	procstat.SignalMarked(mark, 0, syscall.SIGKILL) // processes of the test that run on, as with a bug in the guard or the keeper
	if errors.Is(err, exec.ErrWaitDelay) {
		err = nil // the test itself has ended with 0
	}
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		return "", false, err
	}
	return string(out), err == nil, nil
}

// hunt looks for each mutant by its finder, and prints the first run that finds it.
func (l *lab) hunt(search int) error {
	began := time.Now()
	type result struct{ run, as string }
	results := map[int]result{}
	var mu sync.Mutex
	err := each(slices.Sorted(maps.Keys(l.mutants)), func(n int) error {
		m, start := l.mutants[n], time.Now()
		run, as, err := l.find(n, m.by, search)
		if err != nil {
			return fmt.Errorf("%s: %w", m.name, err)
		}
		mu.Lock()
		defer mu.Unlock()
		results[n] = result{run, as}
		fmt.Printf("%-86s %-5s  %s, %s\n", m.name, run, as, time.Since(start).Round(time.Second))
		return nil
	})
	if err != nil {
		return err
	}
	runs := map[string]int{}
	for n, r := range results {
		runs[r.run]++
		if r.run == "" {
			fmt.Printf("NOT FOUND: %s (%s, by %s)\n", l.mutants[n].name, l.mutants[n].file, l.mutants[n].by)
		}
	}
	fmt.Printf("%d mutants in %s: %d found by make test, %d by .ci/run, %d by make proof\n", len(results),
		time.Since(began).Round(time.Second), runs["test"], runs["test"]+runs["ci"], runs["test"]+runs["ci"]+runs["proof"])
	if runs[""] > 0 {
		return fmt.Errorf("%d of %d not found", runs[""], len(results))
	}
	return nil
}

// The first histories, which each run of a kind has.
const (
	historiesOfTest = 100
	historiesOfCI   = 2000
)

// find returns the first run of test, ci and proof that finds a mutant, and as what; or no run.
func (l *lab) find(n int, f finder, search int) (run, as string, err error) {
	s := l.soundOf(f)
	if s.err != nil {
		return "", "", s.err
	}
	if f.seed > 0 {
		return l.findSeed(n, f, search)
	}
	runs := []string{"test", "proof"}
	if f.tags != "" {
		runs = runs[1:]
	}
	for _, run := range runs {
		var args []string
		if run == "test" {
			args = []string{"-test.short"}
		}
		out, passed, err := l.try(n, l.overlays[n], f, s.limit(), args...)
		if err != nil {
			return "", "", err
		}
		for _, expression := range []*regexp.Regexp{failed, hung} {
			if m := expression.FindStringSubmatch(out); m != nil && !passed {
				return run, m[1], nil
			}
		}
		if !passed && strings.Contains(out, "panic: ") {
			return run, "panic", nil
		}
		if !passed {
			return "", "", fmt.Errorf("%v ended without a verdict:\n%s", f, out)
		}
	}
	return "", "", nil
}

func (l *lab) findSeed(n int, f finder, search int) (run, as string, err error) {
	for _, args := range [][]string{{"-seeds=1", fmt.Sprint("-from=", f.seed)}, {fmt.Sprint("-seeds=", search)}} {
		out, _, err := l.try(n, l.overlays[n], f, time.Hour, append(args, "-brief", "-scene="+f.scene)...)
		if err != nil {
			return "", "", err
		}
		m := found.FindStringSubmatch(out)
		if m == nil {
			continue
		}
		var at int
		_, _ = fmt.Sscan(m[1], &at)
		as = fmt.Sprintf("seed %d%s: %s", at, strings.TrimSuffix(" of "+f.scene, " of "), m[2])
		if at != f.seed {
			as += fmt.Sprintf("; the list says %d", f.seed)
		}
		switch {
		case f.scene == "" && at <= historiesOfTest:
			return "test", as, nil
		case f.scene == "" && at <= historiesOfCI:
			return "ci", as, nil
		default:
			return "proof", as, nil
		}
	}
	return "", "", nil
}

// soundOf checks that a finder finds nothing in the program with all mutants if none of them runs.
func (l *lab) soundOf(f finder) *sound {
	l.mu.Lock()
	s := l.sound[f]
	if s == nil {
		s = &sound{}
		l.sound[f] = s
	}
	l.mu.Unlock()
	s.try.Do(func() {
		if _, s.err = l.program(l.common(), f.pkg, f.tags); s.err == nil {
			began := time.Now()
			s.err = l.trySound(f)
			s.took = time.Since(began)
		}
	})
	return s
}

func (l *lab) trySound(f finder) error {
	args := []string{"-test.short"}
	if f.seed > 0 {
		args = []string{"-seeds=1", fmt.Sprint("-from=", f.seed), "-brief", "-scene=" + f.scene}
	}
	out, passed, err := l.try(0, l.common(), f, 10*time.Minute, args...)
	if err == nil && !passed {
		err = fmt.Errorf("%v fails without a mutant:\n%s", f, out)
	}
	if err == nil && f.seed == 0 && !ran.MatchString(out) {
		err = fmt.Errorf("%v runs no test", f)
	}
	return err
}

func (l *lab) common() string { return filepath.Join(l.dir, "functions") }

// matrix runs all short tests of a package on each mutant, and prints which fail, and what each test alone finds.
func (l *lab) matrix(pkg, tags string) error {
	finders := map[int][]string{}
	var mu sync.Mutex
	every := finder{pkg: pkg, run: ".", tags: tags}
	out, passed, err := l.try(0, l.common(), every, 10*time.Minute, "-test.short")
	if err != nil {
		return err
	}
	if !passed {
		return fmt.Errorf("%s fails without a mutant:\n%s", pkg, out)
	}
	tests := top(ran, out)
	err = each(slices.Sorted(maps.Keys(l.mutants)), func(n int) error {
		out, passed, err := l.try(n, l.overlays[n], every, 3*time.Minute, "-test.short")
		if err != nil {
			return err
		}
		names := append(top(failed, out), top(hung, out)...)
		slices.Sort(names)
		names = slices.Compact(names)
		if !passed && strings.Contains(out, "panic: ") {
			all := ran.FindAllStringSubmatch(out, -1)
			names = append(names, "(a panic ended the run in "+all[len(all)-1][1]+")")
		}
		mu.Lock()
		defer mu.Unlock()
		finders[n] = names
		fmt.Printf("%s\n\t%s\n", l.mutants[n].name, strings.Join(names, " "))
		return nil
	})
	if err != nil {
		return err
	}
	alone, some, nothing := map[string]int{}, map[string]int{}, 0
	for _, names := range finders {
		for _, name := range names {
			some[name]++
		}
		switch len(names) {
		case 0:
			nothing++
		case 1:
			alone[names[0]]++
		}
	}
	fmt.Printf("\n%-64s %5s %5s\n", "test", "finds", "alone")
	for _, name := range tests {
		fmt.Printf("%-64s %5d %5d\n", name, some[name], alone[name])
	}
	fmt.Printf("%d mutants, %d of them found by no short test of %s\n", len(finders), nothing, pkg)
	return nil
}

// top returns the tests that an expression finds in an output, without subtests.
func top(expression *regexp.Regexp, out string) (names []string) {
	for _, m := range expression.FindAllStringSubmatch(out, -1) {
		if !strings.Contains(m[1], "/") {
			names = append(names, m[1])
		}
	}
	return names
}

// each calls f for each number, three times as many at once as there are processors, since many tests wait
// for most of their time. It returns the errors.
func each(numbers []int, f func(int) error) error {
	errs := make([]error, len(numbers))
	parallel.Each(3*runtime.GOMAXPROCS(0), len(numbers), func(i int) { errs[i] = f(numbers[i]) })
	return errors.Join(errs...)
}
