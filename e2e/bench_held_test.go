//go:build linux && minio && programs

package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/repolock/repolock/internal/procstat"
	"github.com/repolock/repolock/internal/test/assert"
	"github.com/repolock/repolock/internal/test/hookstore"
	"github.com/repolock/repolock/internal/test/proxy"
	"github.com/repolock/repolock/internal/test/rounds"
	"github.com/repolock/repolock/replock"
	"github.com/repolock/repolock/store"
	"github.com/repolock/repolock/store/dir"
	"github.com/repolock/repolock/store/memory"
)

// together is the number of commands that hold a lock at the same time.
const together = 20

// watched is the time for which they are measured.
func watched() time.Duration { return rounds.Fewer(time.Minute, 2*time.Second) }

// heldCommands measures commands under a shared lock: the memory and the CPU time of all processes but the
// command's own.
func (b *bench) heldCommands() {
	at := onS3.on(onS3.shared(b))
	p, shared := b.proxied(at), b.TempDir()
	url := at.securely(p) + "&conditions=kept"
	run := func(repo string) []string {
		return []string{b.repolock, "run", "--shared", "--quiet", "--repo", repo, "--"}
	}
	meanwhile := ""
	held := func(name string, lock func() []string) subject {
		return subject{name, func(r row) {
			b.say("%d commands: %s", together, name)
			meanwhile = b.together(r, lock, p)
		}}
	}
	rows := inTurns(1,
		held("flock -s FILE sleep", func() []string { return []string{"flock", "-s", filepath.Join(b.work, "held")} }),
		held("repolock run --shared -- sleep, a directory each", func() []string { return run(b.TempDir()) }),
		held("repolock run --shared -- sleep, one directory", func() []string { return run(shared) }),
		held("repolock run --shared -- sleep, one bucket, s3 over TLS", func() []string { return run(url) }))
	b.note("%d commands on one bucket, in %v: %s", together, watched(), meanwhile)
	b.table(fmt.Sprintf("%d commands, each under its own shared lock, ttl 60 s: the share of one lock", together), rows)
}

// together runs a command under each of the locks, and measures the processes beside the commands. It returns what
// passed the proxy meanwhile.
func (b *bench) together(r row, lock func() []string, p *proxy.Proxy) string {
	b.Helper()
	var pids []int
	for range together {
		c, _, err := heldBy(b.Context(), lock(), "sh", "-c", "echo; exec sleep 900")
		assert.OK(b, err)
		pids = append(pids, c.Process.Pid)
		defer func() { _ = c.Process.Signal(os.Interrupt); _ = c.Wait() }()
	}
	time.Sleep(rounds.Fewer(12*time.Second, time.Second)) // the first looks are over
	passed(p)
	traffic, first, start := p.Traffic(), sharesOf(b.B, pids), time.Now()
	time.Sleep(watched())
	t, requests := p.Traffic().Less(traffic), len(passed(p))
	last, took := sharesOf(b.B, pids), time.Since(start).Seconds()
	r.add("MiB", float64(last.memory)/(1<<20)/together)
	r.add("wake-ups a second", float64(last.wakeups-first.wakeups)/took/together)
	r.add("CPU s an hour", (last.cpu-first.cpu).Seconds()*time.Hour.Seconds()/took/together)
	return fmt.Sprintf("%d requests, %d bytes sent and %d received, %d new connections", requests, t.Sent, t.Received, t.Connections)
}

// shares is what processes use: memory in bytes, and CPU and wake-ups since their start.
type shares struct {
	memory  int64
	cpu     time.Duration
	wakeups int64
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
		stats, err := filepath.Glob("/proc/[0-9]*/stat")
		assert.OK(b, err)
		for _, path := range stats {
			name := strings.Split(path, "/")[2]
			if p, ok := procstat.Read(name); ok && family[p.Parent] {
				pid, err := strconv.Atoi(name)
				assert.OK(b, err)
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

// heldTTL is short, so that each lock is renewed within heldFor, the time of the measurement.
const (
	heldLocks = 1000
	heldTTL   = 20 * time.Second
	heldFor   = 10 * time.Second
)

// heldLocks measures a process that holds many locks.
func (b *bench) heldLocks() {
	held := func(name, on, mode string, locks int) subject {
		return subject{name, func(r row) {
			b.say("%d locks held: %s", locks, name)
			b.holder(r, on, mode, locks)
		}}
	}
	b.table(fmt.Sprintf("%d locks held in one process, ttl %.0f s: CPU in each second", heldLocks, heldTTL.Seconds()), inTurns(1,
		held("shared, store/memory", "mem", "shared", heldLocks),
		held("exclusive, each of its own name, store/memory", "mem", "exclusive", heldLocks),
		held("shared, store/dir", "dir", "shared", heldLocks),
		held("none", "mem", "shared", 0)))
}

// holder runs the process that holds them, and adds what it prints.
func (b *bench) holder(r row, on, mode string, locks int) {
	b.Helper()
	self, err := os.Executable()
	assert.OK(b, err)
	c := exec.Command(self)
	c.Args = []string{"hold", on, mode, strconv.Itoa(locks), b.TempDir()}
	c.Stderr = os.Stderr
	out, err := c.Output()
	assert.OK(b, err)
	var measured map[string]float64
	assert.OK(b, json.Unmarshal(out, &measured))
	for what, v := range measured {
		r.add(what, v)
	}
	// Each lock at half of its ttl; the window can begin or end between two.
	if least := int64(locks) * int64(heldFor) / int64(heldTTL); measured["renewals"] < float64(least) {
		b.Errorf("%v renewals, and not %d or more", measured["renewals"], least)
	}
}

func init() { standIns["hold"] = hold }

// hold is the process that holds locks, STORE MODE LOCKS DIR, and does nothing else. It prints measurements by the
// header of their column.
func hold(args []string) error {
	n, err := strconv.Atoi(args[2])
	if err != nil {
		return err
	}
	var s store.Store = memory.New(memory.Options{})
	if args[0] == "dir" {
		if s, err = dir.Open(context.Background(), args[3]); err != nil {
			return err
		}
	}
	var renewals atomic.Int64
	locks, err := takeMany(s, args[1] == "exclusive", n, func(e replock.Event) {
		if e.Kind == replock.EventRefreshed {
			renewals.Add(1)
		}
	})
	if err != nil {
		return err
	}
	begin, before, renewed := time.Now(), cpu(), renewals.Load()
	time.Sleep(heldFor)
	milliseconds := float64(cpu()-before) / float64(time.Millisecond)
	measured := map[string]float64{
		"CPU ms": milliseconds / time.Since(begin).Seconds(), "renewals": float64(renewals.Load() - renewed), "goroutines": float64(runtime.NumGoroutine()),
	}
	raw, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		return err
	}
	var size, resident int64
	if _, err := fmt.Sscan(string(raw), &size, &resident); err != nil {
		return err
	}
	measured["MiB"] = float64(resident*int64(os.Getpagesize())) / (1 << 20)
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	measured["heap MiB"] = float64(m.HeapAlloc) / (1 << 20)
	for _, k := range locks {
		if err := release(k); err != nil {
			return err
		}
	}
	return json.NewEncoder(os.Stdout).Encode(measured)
}

// takeMany acquires n locks. Exclusive ones have different names.
func takeMany(s store.Store, exclusive bool, n int, observe func(replock.Event)) (locks []*replock.Lock, err error) {
	opts := replock.Options{TTL: heldTTL, Observe: observe, Beside: replock.BesideNobody}
	l, err := replock.New(s, opts)
	for i := 0; i < n && err == nil; i++ {
		take := l.TryShared
		if exclusive {
			opts.Name = fmt.Sprint("bench-", i)
			if l, err = replock.New(s, opts); err != nil {
				return nil, err
			}
			take = l.TryExclusive
		}
		var k *replock.Lock
		k, err = take(context.Background(), "bench")
		locks = append(locks, k)
	}
	return locks, err
}

// cpu returns the time that this process has used.
func cpu() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		panic(err) // the arguments are wrong
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// refreshing measures 1,000 shared holders on one MinIO, in one process instead of on many machines: their
// requests, and how they slow down another shared lock.
func (b *bench) refreshing() {
	n, window, least := rounds.Fewer(1000, 50), rounds.Fewer(time.Minute, 5*time.Second), rounds.Fewer(200, 3)
	at := onS3.on(onS3.shared(b))
	p := b.proxied(at)
	other := always(engine(b.B, warm(b.B, at.securely(p)+"&conditions=kept"), replock.Shared))
	alone := inTurns(least, subject{"alone", func(r row) { r.lock(b.B, p, other, false) }})[0]
	b.say("%d shared locks are acquired on MinIO", n)
	counting := &hookstore.Store{Store: warm(b.B, at.repo()+"&conditions=kept")}
	l, err := replock.New(counting, replock.Options{Beside: replock.BesideNobody})
	assert.OK(b, err)
	locks := make([]*replock.Lock, n)
	eachOf(b.B, connections, n, func(i int) (err error) {
		locks[i], err = l.TryShared(b.Context(), "bench")
		return err
	})
	b.say("they are held for %v, and another lock is acquired", window)
	counting.Count()
	begin, used := time.Now(), cpu()
	beside := newRow(fmt.Sprintf("beside %d holders", n))
	for end := begin.Add(window); time.Now().Before(end) || len(beside.of["ms"]) < least; {
		beside.lock(b.B, p, other, false)
	}
	took := time.Since(begin)
	_, by := counting.Count()
	b.note("%d shared holders, ttl %v, for %v: %s; CPU in each second %.0f ms of the holders' process, with the proxy and the other lock; another lock's acquire: p50 %s ms, p99 %s ms, n %d (alone: %s, %s)",
		n, replock.DefaultTTL, took.Round(time.Second), rates(by, took), 1000*(cpu()-used).Seconds()/took.Seconds(),
		beside.p("ms", 50), beside.p("ms", 99), len(beside.of["ms"]), alone.p("ms", 50), alone.p("ms", 99))
	b.table("shared lock on MinIO over TLS, on an open connection, beside shared holders that refresh", []row{alone, beside})
	b.refreshAll(counting, locks)
	eachOf(b.B, connections, n, func(i int) error { return release(locks[i]) })
}

// refreshAll measures a refresh of all locks at one time, as after an outage.
func (b *bench) refreshAll(counting *hookstore.Store, locks []*replock.Lock) {
	each := make([]time.Duration, len(locks))
	used, begin := cpu(), time.Now()
	counting.Count()
	eachOf(b.B, len(locks), len(locks), func(i int) error {
		start := time.Now()
		defer func() { each[i] = time.Since(start) }()
		return locks[i].Refresh(b.Context())
	})
	took, r := time.Since(begin), newRow("")
	for _, d := range each {
		r.took("ms", d)
	}
	_, by := counting.Count()
	b.note("all %d refreshed at once: %d ms until the last, p50 %s ms, p99 %s ms; %s; CPU %d ms of the holders' process",
		len(locks), took.Milliseconds(), r.p("ms", 50), r.p("ms", 99), rates(by, took), (cpu() - used).Milliseconds())
}

// rates returns the requests in each second, by kind.
func rates(by map[string]int, took time.Duration) string {
	var all []string
	for _, op := range slices.Sorted(maps.Keys(by)) {
		all = append(all, fmt.Sprintf("%.1f %s", float64(by[op])/took.Seconds(), op))
	}
	return strings.Join(all, ", ") + " requests in each second"
}
