//go:build linux && programs

package e2e

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/repolock/repolock/internal/parallel"
	"github.com/repolock/repolock/internal/test/assert"
	"github.com/repolock/repolock/internal/test/rounds"
	"github.com/repolock/repolock/replock"
	"github.com/repolock/repolock/store"
)

// BenchmarkStart measures what the start of repolock's processes costs, and prints tables in Markdown: see "The
// start" in docs/evidence/benchmarks.md. Valgrind counts the instructions, which are nearly the same on any machine and
// under any load. The CPU time includes the time of all children. The first row of each table is flock, because
// the ratio to it depends less on the machine. With -short it repeats little.
func BenchmarkStart(b *testing.B) {
	work := b.TempDir()
	in(b, work, `command -v valgrind; command -v flock; mkdir -p repo/keys; echo key >repo/keys/0123; echo 'package main; func main() {}' >empty.go; go build -o empty empty.go`)
	all := []subject{
		timed(b, "flock FILE true", "flock", filepath.Join(work, "file"), "true"), timed(b, "true", "true"),
		commandLine{args: []string{filepath.Join(work, "empty")}}.counted(b, "a Go program that does nothing"),
	}
	shared := len(all)
	builds := []struct{ name, how string }{
		{"repolock as the packages have it", asPackaged}, {"repolock as go build builds it", "go build"},
	}
	sizes := ""
	for i, v := range builds {
		path := filepath.Join(work, fmt.Sprint("repolock", i))
		build(b, path, v.how)
		info, err := os.Stat(path)
		assert.OK(b, err)
		sizes += fmt.Sprintf("- %s: %.1f MB\n", v.name, float64(info.Size())/1e6)
		all = append(all, startsOf(b, path, filepath.Join(work, "repo"))...)
	}
	turns := rounds.Fewer(150, 3)
	rows := inTurns(turns, all...)
	printTables(fmt.Sprintf("medians of %d in turns", turns), "\n"+sizes)
	fmt.Print(markdown("others", rows[:shared]))
	each := (len(rows) - shared) / len(builds)
	for i, v := range builds {
		fmt.Print(markdown(v.name, append([]row{rows[0]}, rows[shared+i*each:][:each]...)))
	}
}

// startsOf are the processes of a repolock.
func startsOf(b *testing.B, path, repo string) []subject {
	run := func(args ...string) []string {
		return append([]string{path, "run", "--quiet", "--repo", repo}, args...)
	}
	return []subject{
		commandLine{args: []string{path, "version"}}.counted(b, "repolock version"),
		commandLine{args: run("--no-lock", "--", "true")}.counted(b, "repolock run --no-lock -- true"),
		commandLine{args: []string{path, "__lock-guard"}, fails: true}.counted(b, "its guard, until its page"),
		commandLine{args: []string{path}, env: []string{"__REPOLOCK_STARTER=0 1"}, fails: true}.counted(b, "its starter, until its gate opens"),
		timed(b, "repolock run --shared -- true", run("--shared", "--", "true")...),
		timed(b, "repolock run --exclusive -- true", run("--exclusive", "--", "true")...),
	}
}

// counted is a subject of one process, whose whole run is timed, and whose instructions are counted in some runs.
func (p commandLine) counted(b *testing.B, name string) subject {
	return subject{name, func(r row) {
		p.time(b, r)
		if len(r.of["ms"]) <= rounds.Fewer(3, 1) {
			r.add("million instructions", p.count(b))
		}
	}}
}

var total = regexp.MustCompile(`I +refs: +([0-9,]+)`)

// count counts the instructions of one process in user mode, in millions. Valgrind can't follow an execve(2) of
// /proc/self/exe. Of a process that becomes another program, as run --no-lock does, it counts nothing, or the
// other program alone. So the other program must not exist.
func (p commandLine) count(b *testing.B) float64 {
	b.Helper()
	if last := len(p.args) - 1; p.args[last] == "true" {
		p.fails, p.args = true, append(p.args[:last:last], "/nonexistent")
	}
	out, err := p.command("valgrind", "--tool=cachegrind", "--cache-sim=no", "--cachegrind-out-file=/dev/null").CombinedOutput()
	p.ended(b, err, out)
	found := total.FindSubmatch(out)
	if found == nil {
		b.Fatalf("%v: Valgrind counts no instructions: %s", p.args, out)
	}
	n, err := strconv.Atoi(string(bytes.ReplaceAll(found[1], []byte(","), nil)))
	assert.OK(b, err)
	return float64(n) / 1e6
}

// BenchmarkStartAmongProcesses measures the start and the end of repolock on machines with few and with many
// processes, and after a command that leaves processes behind: see docs/evidence/benchmarks.md.
func BenchmarkStartAmongProcesses(b *testing.B) {
	work := b.TempDir()
	path := filepath.Join(work, "repolock")
	in(b, work, "command -v flock; mkdir -p repo/keys; echo key >repo/keys/0123")
	build(b, path, asPackaged)
	run := func(args ...string) []string {
		return append([]string{path, "run", "--quiet", "--shared", "--repo", filepath.Join(work, "repo"), "--"}, args...)
	}
	left := rounds.Fewer(300, 30)
	leaves := []string{"sh", "-c", fmt.Sprintf("i=0; while [ $i -lt %d ]; do (sleep 2 &); i=$((i+1)); done", left)}
	for _, n := range []int{250, rounds.Fewer(3000, 400)} {
		busy(b, n)
		rows := inTurns(rounds.Fewer(100, 3),
			timed(b, "flock FILE true", "flock", filepath.Join(work, "file"), "true"),
			timed(b, "repolock run --shared -- true", run("true")...))
		rows = append(rows, inTurns(rounds.Fewer(10, 1),
			subject{fmt.Sprintf("a command that leaves %d processes, until the last ends", left), func(r row) { leaving(b, r, leaves) }},
			subject{"the same under repolock run --shared", func(r row) { leaving(b, r, run(leaves...)) }})...)
		fmt.Print(markdown(fmt.Sprintf("%d processes on the machine", n), rows))
	}
}

// busy starts processes that sleep until the benchmark ends, so that there are n.
func busy(b *testing.B, n int) {
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
func leaving(b *testing.B, r row, args []string) {
	b.Helper()
	assert.OK(b, unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0))
	c := exec.Command(args[0], args[1:]...)
	c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	start := time.Now()
	assert.OK(b, c.Run())
	cpu := c.ProcessState.UserTime() + c.ProcessState.SystemTime()
	cpu += reaped(-c.Process.Pid, 0) + reaped(-1, unix.WNOHANG)
	r.took("ms", time.Since(start))
	r.took("CPU ms", cpu)
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

// BenchmarkDisk measures locks beside many files of a repository, and the status of many locks, in directories: see
// docs/evidence/benchmarks.md.
func BenchmarkDisk(b *testing.B) {
	work := b.TempDir()
	path := filepath.Join(work, "repolock")
	in(b, work, "command -v strace; mkdir -p files/index flags")
	build(b, path, asPackaged)
	files, locks := rounds.Fewer(100_000, 1000), rounds.Fewer(10_000, 100)
	for i := range files {
		assert.OK(b, os.WriteFile(filepath.Join(work, "files", "index", fmt.Sprintf("%064x", i)), nil, 0o600))
	}
	flags(b, openStore(b, filepath.Join(work, "flags")), locks)
	measured := func(name string, args ...string) subject {
		p := commandLine{args: append([]string{path}, args...)}
		return subject{name, func(r row) {
			p.time(b, r)
			r.add("MiB", peakMemory(b, p.args))
			if len(r.of["ms"]) == 1 {
				r.add("looks at names", p.looks(b, filepath.Join(work, "calls")))
			}
		}}
	}
	run := func(lock string) subject {
		name := fmt.Sprintf("repolock run %s -- true, among %d files in index/", lock, files)
		return measured(name, "run", "--quiet", lock, "--repo", filepath.Join(work, "files"), "--", "true")
	}
	fmt.Print(markdown("locks in a directory", inTurns(rounds.Fewer(10, 1), run("--shared"), run("--exclusive"),
		measured(fmt.Sprintf("repolock status of %d flags", locks), "status", "--repo", filepath.Join(work, "flags")))))
}

// looks returns how often a program looks at a name in a directory.
func (p commandLine) looks(b *testing.B, summary string) float64 {
	b.Helper()
	out, err := p.command("strace", "-f", "-qq", "-c", "-e", "trace=newfstatat,lstat,stat,statx", "-o", summary).CombinedOutput()
	p.ended(b, err, out)
	raw, err := os.ReadFile(summary)
	assert.OK(b, err)
	for line := range strings.Lines(string(raw)) {
		words := strings.Fields(line) // % time, seconds, usecs/call, calls, errors, syscall
		if len(words) > 3 && words[len(words)-1] == "total" {
			calls, err := strconv.Atoi(words[3])
			assert.OK(b, err)
			return float64(calls)
		}
	}
	b.Fatalf("strace has no total: %s", raw)
	return 0
}

// peakMemory runs a program and returns its largest resident memory, or that of one of its own processes, in MiB.
//
// The kernel also counts the memory that a process had before its exec, and a child of ours begins with ours.
// So a shell, which is small, starts the program and ends before the program begins. We inherit the program,
// and read its usage.
func peakMemory(b *testing.B, args []string) float64 {
	b.Helper()
	assert.OK(b, unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0))
	blocked, begin, err := os.Pipe()
	assert.OK(b, err)
	defer blocked.Close()
	defer begin.Close()
	script := `{ read -r begin <&3; exec "$@" 3<&-; } >/dev/null 2>&1 & echo $!`
	c := exec.Command("sh", append([]string{"-c", script, "sh"}, args...)...)
	c.ExtraFiles = []*os.File{blocked}
	out, err := c.Output()
	assert.OK(b, err)
	pid, err := strconv.Atoi(strings.TrimSpace(string(out)))
	assert.OK(b, err)
	_, err = begin.WriteString("begin\n")
	assert.OK(b, err)
	var status unix.WaitStatus
	var usage unix.Rusage
	for err = unix.EINTR; errors.Is(err, unix.EINTR); {
		_, err = unix.Wait4(pid, &status, 0, &usage)
	}
	if err != nil || !status.Exited() || status.ExitStatus() != 0 {
		b.Fatalf("%v: %v, wait status %#x", args, err, int(status))
	}
	return float64(usage.Maxrss) / 1024
}

// flags puts the flags of n shared locks. The first ones of a listing are the youngest, as if
// their holders refreshed them.
func flags(b *testing.B, s store.Store, n int) {
	b.Helper()
	key, body := specimen(b, s)
	stem := key[:strings.LastIndex(key, "-")+1]
	eachOf(b, 16, n, func(i int) error {
		id := fmt.Sprintf("%032x", n-1-i)
		return assert.Err(s.Put(b.Context(), stem+id, body(id), store.PutOptions{}))
	})
}

// specimen returns the key and the body of a lock of another machine: a real lock's body, with another id and
// the present time.
func specimen(b *testing.B, s store.Store) (key string, body func(id string) []byte) {
	b.Helper()
	l, err := replock.New(s, replock.Options{Beside: replock.BesideNobody})
	assert.OK(b, err)
	k, err := l.TryShared(b.Context(), "backup")
	assert.OK(b, err)
	raw, _, err := s.Get(b.Context(), k.Key(), 1<<16)
	assert.OK(b, errors.Join(err, k.Release(b.Context())))
	fields := map[string]any{}
	decoder := json.NewDecoder(bytes.NewReader(raw))
	decoder.UseNumber() // a float would round the largest of them
	assert.OK(b, decoder.Decode(&fields))
	fields["host_id"], fields["boot_id"] = "another", "another"
	return k.Key(), func(id string) []byte {
		mine, now := maps.Clone(fields), time.Now().UTC()
		mine["id"], mine["refreshed_at"], mine["expires_at"] = id, now, now.Add(replock.DefaultTTL)
		raw, err := json.Marshal(mine)
		if err != nil {
			panic(err) // it was JSON before
		}
		return raw
	}
}

// eachOf is parallel.Each, of calls that must succeed.
func eachOf(b *testing.B, limit, n int, f func(i int) error) {
	b.Helper()
	parallel.Each(limit, n, func(i int) {
		assert.Is(b, f(i), nil)
	})
	if b.Failed() {
		b.FailNow()
	}
}
