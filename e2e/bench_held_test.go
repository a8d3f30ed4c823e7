//go:build linux && minio && programs

package e2e

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/repolock/repolock/internal/test/assert"
	"github.com/repolock/repolock/internal/test/rounds"
)

// heldCommands measures commands under a shared lock: the memory and the CPU time of all processes but the
// command's own.
func (b *bench) heldCommands() {
	at := onS3.on(onS3.shared(b))
	all := group{name: fmt.Sprintf("%d commands, each under its own shared lock, ttl 60 s: the share of one lock", together)}
	p, shared := b.proxied(at), b.TempDir()
	url := at.securely(p) + "&conditions=kept"
	var meanwhile string
	for _, c := range []struct {
		name string
		lock func() []string
	}{
		{"flock -s FILE sleep", func() []string { return []string{"flock", "-s", filepath.Join(b.work, "held")} }},
		{"repolock run --shared -- sleep, a directory each", func() []string { return b.holding(b.TempDir()) }},
		{"repolock run --shared -- sleep, one directory", func() []string { return b.holding(shared) }},
		{"repolock run --shared -- sleep, one bucket, s3 over TLS", func() []string { return b.holding(url) }},
	} {
		b.say("%d commands: %s", together, c.name)
		u := b.together(c.lock, func() func() {
			passed(p)
			before := p.Traffic()
			return func() {
				t := p.Traffic().Less(before)
				meanwhile = fmt.Sprintf("%d requests, %d bytes sent and %d received, %d new connections", len(passed(p)), t.Sent, t.Received, t.Connections)
			}
		})
		r := row{name: c.name, memory: sizes{u.memory / together}}
		r.wakeups = float64(u.wakeups) / u.took.Seconds() / together
		r.hourly = u.cpu.Seconds() * time.Hour.Seconds() / u.took.Seconds() / together
		all.rows = append(all.rows, r)
	}
	b.notes = append(b.notes, fmt.Sprintf("%d commands on one bucket, in %v: %s", together, watched(), meanwhile))
	b.table = append(b.table, all)
}

// watched is the time for which they are measured.
func watched() time.Duration { return rounds.Fewer(time.Minute, 2*time.Second) }

// together is the number of commands that hold a lock at the same time.
const together = 20

func (b *bench) holding(repo string) []string {
	return []string{b.repolock, "run", "--shared", "--quiet", "--repo", repo, "--"}
}

// shares is what processes use: memory in bytes, and CPU and wake-ups, during took.
type shares struct {
	memory    int64
	took, cpu time.Duration
	wakeups   int64
}

// together runs a command under each of the locks, and measures the processes beside the commands. begin is called
// when the measurement begins, and what it returns when that ends.
func (b *bench) together(lock func() []string, begin func() (end func())) (u shares) {
	b.Helper()
	var ends []func()
	var pids []int
	for range together {
		args := append(lock(), "sh", "-c", "echo; exec sleep 900")
		c := exec.Command(args[0], args[1:]...)
		out, err := c.StdoutPipe()
		assert.OK(b, err)
		assert.OK(b, c.Start())
		if _, err := io.ReadFull(out, make([]byte, 1)); err != nil { // it has the lock
			b.Fatal(err, c.Wait())
		}
		pids = append(pids, c.Process.Pid)
		ends = append(ends, func() { _ = c.Process.Signal(os.Interrupt); _ = c.Wait() })
	}
	time.Sleep(rounds.Fewer(12*time.Second, time.Second)) // the first looks are over
	first, start, finish := sharesOf(b.B, pids), time.Now(), begin()
	time.Sleep(watched())
	finish()
	last := sharesOf(b.B, pids)
	u = shares{memory: last.memory, took: time.Since(start), cpu: last.cpu - first.cpu, wakeups: last.wakeups - first.wakeups}
	for _, end := range ends {
		end()
	}
	return u
}

// kernelStack is the stack of a thread in the kernel, in KiB.
const kernelStack = 16

// sharesOf sums up the processes and their descendants, but for sleep. A page that several of them use is divided
// among them (Pss).
func sharesOf(b *testing.B, roots []int) (u shares) {
	b.Helper()
	family := map[int]bool{}
	for _, pid := range roots {
		family[pid] = true
	}
	// A child has a larger number than its parent unless the numbers have begun anew: so twice.
	for range 2 {
		for pid, parent := range parents(b) {
			if family[parent] {
				family[pid] = true
			}
		}
	}
	for pid := range family {
		dir := fmt.Sprintf("/proc/%d/", pid)
		name, err := os.ReadFile(dir + "comm")
		if err != nil || string(name) == "sleep\n" {
			continue // ended, or the command itself
		}
		u.memory += (field(b, dir+"smaps_rollup", "Pss:") + field(b, dir+"status", "VmPTE:") + kernelStack*field(b, dir+"status", "Threads:")) << 10
		threads, err := filepath.Glob(dir + "task/*")
		assert.OK(b, err)
		for _, thread := range threads {
			u.wakeups += field(b, thread+"/status", "voluntary_ctxt_switches:")
			raw, err := os.ReadFile(thread + "/schedstat")
			assert.OK(b, err)
			ran, err := strconv.ParseInt(strings.Fields(string(raw))[0], 10, 64)
			assert.OK(b, err)
			u.cpu += time.Duration(ran)
		}
	}
	return u
}

// parents returns the parent of each process.
func parents(b *testing.B) map[int]int {
	b.Helper()
	all := map[int]int{}
	paths, err := filepath.Glob("/proc/[0-9]*/stat")
	assert.OK(b, err)
	for _, path := range paths {
		raw, err := os.ReadFile(path)
		if err != nil {
			continue // it has ended
		}
		pid, err1 := strconv.Atoi(strings.Split(path, "/")[2])
		parent, err2 := strconv.Atoi(strings.Fields(string(raw[bytes.LastIndexByte(raw, ')')+1:]))[1])
		assert.OK(b, err1)
		assert.OK(b, err2)
		all[pid] = parent
	}
	return all
}

// field returns a number after a name at the begin of a line.
func field(b *testing.B, path, name string) int64 {
	b.Helper()
	raw, err := os.ReadFile(path)
	assert.OK(b, err)
	for line := range strings.Lines(string(raw)) {
		if words := strings.Fields(line); len(words) > 1 && words[0] == name {
			n, err := strconv.ParseInt(words[1], 10, 64)
			assert.OK(b, err)
			return n
		}
	}
	b.Fatalf("%s has no %s", path, name)
	return 0
}
