//go:build linux

// Benchstart measures what the start of repolock's processes costs, and prints a table in
// Markdown: see "The start" in docs/benchmarks.md. Valgrind counts the instructions, which are
// nearly the same on any machine and under any load. It fails where Valgrind or flock isn't there:
// make bench-start.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
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
		{name: "its guard, until its first order", args: []string{path, "__repolock-guard"}},
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
