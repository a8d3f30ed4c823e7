//go:build linux && programs

package e2e

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/repolock/repolock/internal/test/assert"
	"github.com/repolock/repolock/internal/test/rounds"
)

// subject is a command line, with the measurements of its process.
type subject struct {
	row
	args  []string
	env   []string
	fails bool // its exit code isn't 0
	whole bool // it isn't one process
}

func rows(all []*subject) (rows []row) {
	for _, s := range all {
		rows = append(rows, s.row)
	}
	return rows
}

func (s *subject) command(before ...string) *exec.Cmd {
	args := append(before, s.args...)
	c := exec.Command(args[0], args[1:]...)
	c.Env = append(os.Environ(), s.env...)
	return c
}

// ended checks how it has ended.
func (s *subject) ended(b *testing.B, err error, out []byte) {
	b.Helper()
	if _, exited := errors.AsType[*exec.ExitError](err); s.fails != exited || !exited && err != nil {
		b.Fatalf("%s: it ended with %v: %s", s.name, err, out)
	}
}

// time runs it once. Its output isn't read, which would take time.
func (s *subject) time(b *testing.B) {
	b.Helper()
	c := s.command()
	start := time.Now()
	err := c.Run()
	took := time.Since(start)
	s.ended(b, err, nil)
	usage := c.ProcessState.SysUsage().(*syscall.Rusage)
	s.n++
	s.took = append(s.took, took)
	s.cpu = append(s.cpu, c.ProcessState.UserTime()+c.ProcessState.SystemTime())
	s.faults = append(s.faults, int(usage.Minflt+usage.Majflt))
}

// inTurns runs subjects in turn, so that other load on the machine affects all of them.
func inTurns(b *testing.B, all []*subject, turns int) {
	b.Helper()
	for range turns {
		for _, s := range all {
			s.time(b)
		}
	}
}

// BenchmarkStart measures what the start of repolock's processes costs, and prints a table in Markdown: see "The
// start" in docs/evidence/benchmarks.md. Valgrind counts the instructions, which are nearly the same on any machine and
// under any load. The CPU time includes the time of all children. The first row of each group is flock, because
// the ratio to it depends less on the machine. With -short it repeats little.
func BenchmarkStart(b *testing.B) {
	work := b.TempDir()
	in(b, work, `command -v valgrind; command -v flock; mkdir repo; echo 'package main; func main() {}' >empty.go; go build -o empty empty.go`)
	all := []*subject{
		{row: row{name: "flock FILE true"}, args: []string{"flock", filepath.Join(work, "file"), "true"}, whole: true},
		{row: row{name: "true"}, args: []string{"true"}, whole: true},
		{row: row{name: "a Go program that does nothing"}, args: []string{filepath.Join(work, "empty")}},
	}
	builds := []struct{ name, flags string }{
		{"repolock as the packages have it", "CGO_ENABLED=0 go build -trimpath -ldflags='-s -w'"}, {"repolock as go install builds it", "go build"},
	}
	sizes := ""
	for i, build := range builds {
		path := filepath.Join(work, fmt.Sprint("repolock", i))
		in(b, "..", build.flags+" -o "+path+" ./cmd/repolock")
		info, err := os.Stat(path)
		assert.OK(b, err)
		sizes += fmt.Sprintf("- %s: %.1f MB\n", build.name, float64(info.Size())/1e6)
		all = append(all, startsOf(path, filepath.Join(work, "repo"))...)
	}
	for _, s := range all {
		s.count(b)
	}
	turns := rounds.Fewer(150, 3)
	inTurns(b, all, turns)
	measured, others := rows(all), len(all)/len(builds)-1
	t := table{{"others", measured[:3]}}
	for i, build := range builds {
		t = append(t, group{build.name, append([]row{measured[0]}, measured[3+i*others:][:others]...)})
	}
	fmt.Printf("\n%s/%s, %d CPUs; %s; medians of %d in turns.\n\n%s\n%s", runtime.GOOS, runtime.GOARCH, runtime.NumCPU(), runtime.Version(), turns, sizes, t.markdown(starts))
}

// startsOf are the processes of a repolock.
func startsOf(path, repo string) []*subject {
	run := []string{path, "run", "--quiet", "--repo", repo}
	return []*subject{
		{row: row{name: "repolock version"}, args: []string{path, "version"}},
		{row: row{name: "repolock run --no-lock -- true"}, args: append(run, "--no-lock", "--", "true")},
		{row: row{name: "its guard, until its page"}, args: []string{path, "__lock-guard"}, fails: true},
		{row: row{name: "its starter, until its gate opens"}, args: []string{path}, env: []string{"__REPOLOCK_STARTER=0 1"}, fails: true},
		{row: row{name: "repolock run --shared -- true"}, args: append(run, "--shared", "--", "true"), whole: true},
		{row: row{name: "repolock run --exclusive -- true"}, args: append(run, "--exclusive", "--", "true"), whole: true},
	}
}

var total = regexp.MustCompile(`I +refs: +([0-9,]+)`)

// count counts the instructions of one process in user mode. Valgrind can't follow an execve(2) of
// /proc/self/exe. Of a process that becomes another program, as run --no-lock does, it counts nothing, or the
// other program alone. So the other program must not exist.
func (s *subject) count(b *testing.B) {
	b.Helper()
	if s.whole {
		return
	}
	counted := *s
	if last := len(s.args) - 1; s.args[last] == "true" {
		counted.fails, counted.args = true, append(slices.Clone(s.args[:last]), "/nonexistent")
	}
	for range rounds.Fewer(3, 1) {
		out, err := counted.command("valgrind", "--tool=cachegrind", "--cache-sim=no", "--cachegrind-out-file=/dev/null").CombinedOutput()
		counted.ended(b, err, out)
		found := total.FindSubmatch(out)
		if found == nil {
			b.Fatalf("%s: Valgrind counts no instructions: %s", s.name, out)
		}
		n, err := strconv.Atoi(string(bytes.ReplaceAll(found[1], []byte(","), nil)))
		assert.OK(b, err)
		s.instructions = append(s.instructions, n)
	}
}

// bench is one run of BenchmarkLocks.
type bench struct {
	*testing.B        // of the section
	work       string // a temporary directory
	repolock   string // the command, built there as users build it
	cert, key  string // of the proxies
	start      time.Time
	table      table
	notes      []string // lines below the table
}

// say prints the progress to stderr.
func (b *bench) say(format string, args ...any) {
	fmt.Fprintf(os.Stderr, "bench: %3.0f s: %s\n", time.Since(b.start).Seconds(), fmt.Sprintf(format, args...))
}

// settled is long enough for a process to begin to wait for another.
const settled = 300 * time.Millisecond

// handOver measures the time from the end of the command that has the exclusive lock to the start of
// the next holder's command, which waits for it, on a directory, beside flock.
func (b *bench) handOver() {
	b.say("hand-over")
	all := []*subject{
		{row: row{name: "flock FILE, to the next flock FILE"}, args: []string{"flock", filepath.Join(b.work, "handed")}},
		{row: row{name: "repolock prune, to repolock prune --wait"}, args: []string{b.repolock, "prune", "--quiet", "--wait", "10m", "--repo", b.TempDir(), "--"}},
	}
	for range rounds.Fewer(100, 3) {
		for _, s := range all {
			s.n++
			s.took = append(s.took, handOver(b.B, s.args))
		}
	}
	b.table = append(b.table, group{"release to the waiter's command, on a directory", rows(all)})
}

// handOver passes a lock from one process to another once. Both run their command under this command.
func handOver(b *testing.B, lock []string) time.Duration {
	b.Helper()
	lock = slices.Clip(lock)
	holds := exec.Command(lock[0], append(lock[1:], "sh", "-c", "echo; read line; exit 0")...)
	in, err := holds.StdinPipe()
	assert.OK(b, err)
	out, err := holds.StdoutPipe()
	assert.OK(b, err)
	assert.OK(b, holds.Start())
	if _, err := io.ReadFull(out, make([]byte, 1)); err != nil { // it has the lock
		b.Fatal(err, holds.Wait())
	}
	waits := exec.Command(lock[0], append(lock[1:], "date", "+%s%N")...)
	var began strings.Builder
	waits.Stdout = &began
	assert.OK(b, waits.Start())
	time.Sleep(settled)
	ended := time.Now()
	in.Close()
	assert.OK(b, errors.Join(waits.Wait(), holds.Wait()))
	at, err := strconv.ParseInt(strings.TrimSpace(began.String()), 10, 64)
	assert.OK(b, err)
	return time.Unix(0, at).Sub(ended)
}
