//go:build linux

package main

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
	"time"

	"github.com/repolock/repolock/internal/parallel"
	"github.com/repolock/repolock/internal/test/hookstore"
	"github.com/repolock/repolock/replock"
	"github.com/repolock/repolock/store"
	"github.com/repolock/repolock/store/dir"
	"github.com/repolock/repolock/store/mem"
)

// heldTTL is short, so that each lock is renewed while it is measured.
const (
	heldLocks = 1000
	heldTTL   = 20 * time.Second
)

// heldLocks measures a process that holds many locks.
func (b *bench) heldLocks(ctx context.Context) error {
	name := fmt.Sprintf("%d locks held in one process, ttl %.0f s", heldLocks, heldTTL.Seconds())
	resident, heap := group{name: name + ": CPU in each second, resident memory"}, group{name: name + ": heap"}
	for _, c := range []struct {
		name, on, mode string
		locks          int
	}{
		{"shared, store/mem", "mem", "shared", heldLocks},
		{"exclusive, each of its own name, store/mem", "mem", "exclusive", heldLocks},
		{"shared, store/dir", "dir", "shared", heldLocks},
		{"none", "mem", "shared", 0},
	} {
		b.say("%d locks held: %s", c.locks, c.name)
		h, err := b.runHolder(ctx, c.on, c.mode, c.locks)
		if err != nil {
			return fmt.Errorf("%s: %w", c.name, err)
		}
		second := time.Duration(float64(h.CPU) / h.Took.Seconds())
		resident.rows = append(resident.rows, row{name: c.name, n: 1, cpu: times{second}, memory: sizes{h.Resident}, goroutines: h.Goroutines})
		heap.rows = append(heap.rows, row{name: c.name, n: 1, memory: sizes{h.Heap}})
	}
	b.table = append(b.table, resident, heap)
	return nil
}

// runHolder starts the process that holds them.
func (b *bench) runHolder(ctx context.Context, on, mode string, locks int) (h usage, err error) {
	self, err := os.Executable()
	if err != nil {
		return h, err
	}
	dir := filepath.Join(b.work, "held-"+on)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return h, err
	}
	c := exec.CommandContext(ctx, self, holdArg, on, mode, strconv.Itoa(locks), b.holding.String(), dir)
	c.Stderr = os.Stderr
	out, err := c.Output()
	if err != nil {
		return h, err
	}
	if err := json.Unmarshal(out, &h); err != nil {
		return h, err
	}
	// Each lock at half of its ttl; the window can begin or end between two.
	if least := int64(locks) * int64(b.holding) / int64(heldTTL); h.Renewals < least {
		return h, fmt.Errorf("%d renewals in %v, and not %d or more", h.Renewals, h.Took, least)
	}
	return h, nil
}

// holdArg is the argument of the process that holds locks. It is a process of its own so that
// it does nothing else.
const holdArg = "hold"

// usage is the measurements of that process.
type usage struct {
	Took       time.Duration // while it held the locks, and did nothing else
	CPU        time.Duration // of that time
	Renewals   int64
	Goroutines int
	Heap       int64
	Resident   int64
}

// holderMain is that process: STORE MODE LOCKS TIME DIR.
func holderMain(args []string) error {
	if len(args) != 5 {
		return fmt.Errorf("%s is for the bench's own use", holdArg)
	}
	locks, err := strconv.Atoi(args[2])
	if err != nil {
		return err
	}
	window, err := time.ParseDuration(args[3])
	if err != nil {
		return err
	}
	var s store.Store = mem.New(mem.Options{})
	if args[0] == "dir" {
		if s, err = dir.Open(context.Background(), args[4], dir.Options{}); err != nil {
			return err
		}
	}
	h, err := measureHolder(s, args[1] == "exclusive", locks, window)
	if err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(h)
}

// measureHolder takes the locks, and measures the process while it holds them.
func measureHolder(s store.Store, exclusive bool, n int, window time.Duration) (h usage, err error) {
	var renewals atomic.Int64
	locks, err := takeMany(s, exclusive, n, func(e replock.Event) {
		if e.Kind == replock.EventRefreshed {
			renewals.Add(1)
		}
	})
	if err != nil {
		return h, err
	}
	begin, before, renewed := time.Now(), cpu(), renewals.Load()
	time.Sleep(window)
	h = usage{Took: time.Since(begin), CPU: cpu() - before, Renewals: renewals.Load() - renewed, Goroutines: runtime.NumGoroutine()}

	if h.Resident, err = resident(); err != nil {
		return h, err
	}
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	h.Heap = int64(m.HeapAlloc)
	for _, k := range locks {
		if lost := k.Lost(); lost != nil {
			return h, lost
		}
		if err := k.Release(context.Background()); err != nil {
			return h, err
		}
	}
	return h, nil
}

// takeMany takes n locks: shared ones in parallel, exclusive ones each under a name of its
// own.
func takeMany(s store.Store, exclusive bool, n int, observe func(replock.Event)) (locks []*replock.Lock, err error) {
	ctx := context.Background()
	opts := replock.Options{TTL: heldTTL, Observe: observe}
	l, err := replock.New(s, opts)
	for i := 0; i < n && err == nil; i++ {
		var k *replock.Lock
		if exclusive {
			opts.Name = fmt.Sprint("bench-", i)
			if l, err = replock.New(s, opts); err != nil {
				return nil, err
			}
			k, err = l.Exclusive(ctx, "bench")
		} else {
			k, err = l.Shared(ctx, "bench")
		}
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

// resident returns the resident memory of this process, in bytes.
func resident() (int64, error) {
	raw, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		return 0, err
	}
	fields := strings.Fields(string(raw))
	if len(fields) < 2 {
		return 0, fmt.Errorf("/proc/self/statm: %q", raw)
	}
	pages, err := strconv.ParseInt(fields[1], 10, 64)
	return pages * int64(os.Getpagesize()), err
}

// connections is the number of locks that the holders' process acquires or releases at once.
const connections = 8

// holders are shared locks on MinIO that one process holds, as their machines would.
type holders struct {
	store *hookstore.Store // which counts
	locks []*replock.Lock
}

// refreshing measures many shared holders on one MinIO: what they send, and what it costs another
// shared lock.
func (b *bench) refreshing(ctx context.Context) error {
	at, err := newBucket(ctx)
	if err != nil {
		return err
	}
	defer at.close()
	alone, beside := row{name: "alone"}, row{name: fmt.Sprintf("beside %d holders", b.holders)}
	other, err := warm(ctx, at.s3(at.proxy.Host(), "refreshing")+"&conditions=kept")
	if err != nil {
		return err
	}
	for range b.besides {
		if err := alone.measure(ctx, at.proxy, ours(other, replock.Shared), nil); err != nil {
			return err
		}
	}
	b.say("%d shared locks are acquired on MinIO", b.holders)
	h, err := holdMany(ctx, at, b.holders)
	if err != nil {
		return err
	}
	b.say("they are held for %v, and another lock is acquired", b.window)
	h.store.Count()
	begin, client, server := time.Now(), cpu(), minioCPU()
	for end := begin.Add(b.window); time.Now().Before(end) || beside.n < b.besides; {
		if err := beside.measure(ctx, at.proxy, ours(other, replock.Shared), nil); err != nil {
			return err
		}
	}
	took := time.Since(begin)
	_, by := h.store.Count()
	b.note("%d shared holders, ttl %v, for %v: %s; CPU in each second %s ms of the holders' process, with the proxy and the other lock, %s ms of MinIO; another lock's acquire: p50 %s ms, p99 %s ms, n %d (alone: %s, %s)",
		b.holders, replock.DefaultTTL, took.Round(time.Second), rates(by, took),
		ms(perSecond(cpu()-client, took)), ms(perSecond(minioCPU()-server, took)),
		ms(beside.took.median()), ms(beside.took.quantile(99)), beside.n, ms(alone.took.median()), ms(alone.took.quantile(99)))
	b.table = append(b.table, group{"shared lock on MinIO, beside shared holders that refresh", []row{alone, beside}})
	if err := b.refreshAll(ctx, h); err != nil {
		return err
	}
	return h.release()
}

// refreshAll measures a refresh of all locks at one time, as after an outage.
func (b *bench) refreshAll(ctx context.Context, h *holders) error {
	each := make(times, len(h.locks))
	h.store.Count()
	client, server, begin := cpu(), minioCPU(), time.Now()
	err := eachOf(len(h.locks), len(h.locks), func(i int) error {
		start := time.Now()
		defer func() { each[i] = time.Since(start) }()
		return h.locks[i].Renew(ctx)
	})
	took := time.Since(begin)
	if err != nil {
		return err
	}
	_, by := h.store.Count()
	b.note("all %d refreshed at once: %s ms until the last, p50 %s ms, p99 %s ms; %s; CPU %s ms of the holders' process, %s ms of MinIO",
		len(h.locks), ms(took), ms(each.median()), ms(each.quantile(99)), rates(by, took), ms(cpu()-client), ms(minioCPU()-server))
	return nil
}

func holdMany(ctx context.Context, at *bucket, n int) (*holders, error) {
	s, err := warm(ctx, at.s3(at.host, "refreshing")+"&conditions=kept")
	if err != nil {
		return nil, err
	}
	h := &holders{store: &hookstore.Store{Store: s}, locks: make([]*replock.Lock, n)}
	l, err := replock.New(h.store, replock.Options{})
	if err != nil {
		return nil, err
	}
	return h, eachOf(connections, n, func(i int) (err error) {
		h.locks[i], err = l.Shared(ctx, "bench")
		return err
	})
}

func (h *holders) release() error {
	return eachOf(connections, len(h.locks), func(i int) error {
		if lost := h.locks[i].Lost(); lost != nil {
			return lost
		}
		return h.locks[i].Release(context.Background())
	})
}

// eachOf is parallel.Each. It returns one of the errors.
func eachOf(limit, n int, f func(i int) error) error {
	var failed atomic.Pointer[error]
	parallel.Each(limit, n, func(i int) {
		if err := f(i); err != nil {
			failed.Store(&err)
		}
	})
	if err := failed.Load(); err != nil {
		return *err
	}
	return nil
}

// rates returns the requests in each second, by kind.
func rates(by map[string]int, took time.Duration) string {
	var all []string
	for _, op := range slices.Sorted(maps.Keys(by)) {
		all = append(all, fmt.Sprintf("%.1f %s", float64(by[op])/took.Seconds(), op))
	}
	return strings.Join(all, ", ") + " requests in each second"
}

func perSecond(d, took time.Duration) time.Duration {
	return time.Duration(float64(d) / took.Seconds())
}

// minioCPU returns the time that MinIO has used, or 0 if it isn't a process of this machine that
// REPOLOCK_E2E_MINIO_BIN names.
func minioCPU() time.Duration {
	exes, _ := filepath.Glob("/proc/[0-9]*/exe")
	endpoint, _ := endpoint()
	for _, exe := range exes {
		if at, err := os.Readlink(exe); err != nil || at != os.Getenv("REPOLOCK_E2E_MINIO_BIN") {
			continue
		}
		dir := filepath.Dir(exe)
		line, _ := os.ReadFile(filepath.Join(dir, "cmdline"))
		stat, err := os.ReadFile(filepath.Join(dir, "stat"))
		if err != nil || !strings.Contains(string(line), strings.TrimPrefix(endpoint, "http://")) {
			continue
		}
		fields := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
		user, _ := strconv.Atoi(fields[11])
		system, _ := strconv.Atoi(fields[12])
		return time.Duration(user+system) * 10 * time.Millisecond // a tick
	}
	return 0
}
