//go:build linux && programs

package e2e

import (
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/repolock/repolock/internal/test/assert"
	"github.com/repolock/repolock/internal/test/rounds"
)

// BenchmarkStartAmongProcesses measures the start and the end of repolock on machines with few and with many
// processes, and after a command that leaves processes behind: see docs/evidence/benchmarks.md.
func BenchmarkStartAmongProcesses(b *testing.B) {
	work := b.TempDir()
	path := filepath.Join(work, "repolock")
	in(b, work, "command -v flock; mkdir repo")
	in(b, "..", "CGO_ENABLED=0 go build -trimpath -ldflags='-s -w' -o "+path+" ./cmd/repolock")
	run := []string{path, "run", "--quiet", "--shared", "--repo", filepath.Join(work, "repo"), "--"}
	var t table
	for _, n := range []int{250, rounds.Fewer(3000, 400)} {
		crowd(b, n)
		all := []*subject{
			{row: row{name: "flock FILE true"}, args: []string{"flock", filepath.Join(work, "file"), "true"}},
			{row: row{name: "repolock run --shared -- true"}, args: append(run, "true")},
		}
		inTurns(b, all, rounds.Fewer(100, 3))
		left := rounds.Fewer(300, 30)
		leaves := []string{"sh", "-c", fmt.Sprintf("i=0; while [ $i -lt %d ]; do (sleep 2 &); i=$((i+1)); done", left)}
		name := fmt.Sprintf("a command that leaves %d processes, until the last ends", left)
		orphans := []*subject{{row: row{name: name}, args: leaves}, {row: row{name: "the same under repolock run --shared"}, args: append(run, leaves...)}}
		for range rounds.Fewer(10, 1) {
			for _, s := range orphans {
				s.leaving(b)
			}
		}
		t = append(t, group{fmt.Sprintf("%d processes on the machine", n), rows(append(all, orphans...))})
	}
	fmt.Printf("\n%s", t.separate(layout{[]string{"n", "CPU ms", "ms", "p90 ms"}, func(r, _ row) []string {
		return []string{number(r.n), ms(r.cpu.median()), ms(r.took.median()), ms(r.took.p90())}
	}}))
}

// crowd starts processes that sleep until the benchmark ends, so that there are n.
func crowd(b *testing.B, n int) {
	b.Helper()
	there, err := filepath.Glob("/proc/[0-9]*")
	assert.OK(b, err)
	for range n - len(there) {
		c := exec.Command("sleep", "3600")
		assert.OK(b, c.Start())
		b.Cleanup(func() { _ = c.Process.Kill(); _ = c.Wait() })
	}
}

// leaving runs a command that leaves processes behind, and waits for them. repolock holds the lock until they have
// ended. The CPU time is that of all.
func (s *subject) leaving(b *testing.B) {
	b.Helper()
	assert.OK(b, unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0))
	c := s.command()
	c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	start := time.Now()
	assert.OK(b, c.Run())
	cpu := c.ProcessState.UserTime() + c.ProcessState.SystemTime()
	cpu += reaped(-c.Process.Pid, 0) + reaped(-1, unix.WNOHANG)
	s.n++
	s.took = append(s.took, time.Since(start))
	s.cpu = append(s.cpu, cpu)
}

// reaped waits for our children among these processes, and returns their CPU time.
func reaped(pids, options int) (cpu time.Duration) {
	for {
		var usage unix.Rusage
		pid, err := unix.Wait4(pids, nil, options, &usage)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil || pid == 0 {
			return cpu // there are no more
		}
		cpu += time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
	}
}
