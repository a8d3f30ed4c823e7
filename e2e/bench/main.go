//go:build linux

// Bench measures what a lock costs, and prints one table in Markdown: see
// docs/benchmarks.md. It needs the MinIO that e2e/minio.sh starts, restic and
// flock, and fails where one of them isn't there: make bench.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

func main() {
	quick := flag.Bool("quick", false, "repeat little, only to check that the bench works")
	only := flag.String("only", "", "run one section alone: "+strings.Join(sectionNames(), ", "))
	flag.Parse()
	if flag.Arg(0) == holdArg {
		exit(holderMain(flag.Args()[1:]))
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	exit(run(ctx, *quick, *only))
}

func exit(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
	os.Exit(0)
}

// bench is one run.
type bench struct {
	repeats
	work     string // a directory of its own
	repolock string // the command, built there as users build it
	start    time.Time
	table    table
	notes    []string // lines below the table
	missing  []string // programs that aren't installed
}

// repeats are the numbers of measurements.
type repeats struct {
	trips   func(added time.Duration) int // acquire and release
	command int                           // whole ones that lock
	crowd   int
	process int
	handed  int
	memory  int
	holding time.Duration
	live    []int // numbers of other flags, in ascending order
	holders int   // that refresh
	window  time.Duration
	besides int // acquires beside them, at least
}

var (
	thorough = repeats{
		trips:   func(added time.Duration) int { return map[time.Duration]int{0: 60, near: 20, far: 8}[added] },
		command: 5, crowd: 20, process: 150, handed: 100, memory: 10, holding: 10 * time.Second, live: []int{0, 100, 10_000},
		holders: 1000, window: time.Minute, besides: 200,
	}
	little = repeats{
		trips:   func(time.Duration) int { return 2 },
		command: 2, crowd: 3, process: 10, handed: 3, memory: 2, holding: 10 * time.Second, live: []int{0, 100, 1000},
		holders: 50, window: 5 * time.Second, besides: 3,
	}
)

// sections are the parts of the table.
var sections = []struct {
	name string
	run  func(*bench, context.Context) error
}{
	{"processes", (*bench).processes}, {"hand-over", (*bench).handOver}, {"held", (*bench).heldLocks},
	{"latencies", (*bench).latencies}, {"among", (*bench).amongOthers}, {"refreshing", (*bench).refreshing},
}

func sectionNames() (names []string) {
	for _, s := range sections {
		names = append(names, s.name)
	}
	return names
}

// run measures everything and prints it. A row whose program isn't installed says so, and is
// an error. After any other error run prints nothing.
func run(ctx context.Context, quick bool, only string) error {
	if only != "" && !slices.Contains(sectionNames(), only) {
		return fmt.Errorf("-only %s: must be one of %s", only, strings.Join(sectionNames(), ", "))
	}
	if _, err := endpoint(); err != nil {
		return err
	}
	work, err := os.MkdirTemp("", "repolock-bench-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(work)
	b := &bench{repeats: thorough, work: work, start: time.Now()}
	if quick {
		b.repeats = little
	}
	who, err := b.versions(ctx)
	if err != nil {
		return err
	}
	if err := b.build(ctx); err != nil {
		return err
	}
	for _, section := range sections {
		if only != "" && only != section.name {
			continue
		}
		if err := section.run(b, ctx); err != nil {
			return err
		}
	}
	fmt.Println(who)
	fmt.Println()
	fmt.Print(b.table.markdown())
	for _, note := range b.notes {
		fmt.Printf("\n- %s\n", note)
	}
	if len(b.missing) > 0 {
		return fmt.Errorf("not all was measured, for want of: %s", strings.Join(b.missing, ", "))
	}
	return nil
}

// build builds repolock as users do.
func (b *bench) build(ctx context.Context) error {
	b.say("building repolock")
	b.repolock = filepath.Join(b.work, "repolock")
	out, err := exec.CommandContext(ctx, "go", "build", "-trimpath", "-o", b.repolock, "./cmd/repolock").CombinedOutput()
	if err != nil {
		return fmt.Errorf("building repolock: %w: %s", err, out)
	}
	return nil
}

// note adds a line below the table.
func (b *bench) note(format string, args ...any) {
	b.notes = append(b.notes, fmt.Sprintf(format, args...))
}

// say prints progress on the terminal.
func (b *bench) say(format string, args ...any) {
	fmt.Fprintf(os.Stderr, "bench: %3.0f s: %s\n", time.Since(b.start).Seconds(), fmt.Sprintf(format, args...))
}
