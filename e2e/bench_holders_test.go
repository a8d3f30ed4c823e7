//go:build linux && minio && programs

package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/repolock/repolock/internal/test/assert"
	"github.com/repolock/repolock/internal/test/hookstore"
	"github.com/repolock/repolock/internal/test/rounds"
	"github.com/repolock/repolock/replock"
	"github.com/repolock/repolock/store"
	"github.com/repolock/repolock/store/dir"
	"github.com/repolock/repolock/store/memory"
)

// heldTTL is short, so that each lock is renewed within heldFor, the time of the measurement.
const (
	heldLocks = 1000
	heldTTL   = 20 * time.Second
	heldFor   = 10 * time.Second
)

// heldLocks measures a process that holds many locks.
func (b *bench) heldLocks() {
	all := group{name: fmt.Sprintf("%d locks held in one process, ttl %.0f s: CPU in each second", heldLocks, heldTTL.Seconds())}
	for _, c := range []struct {
		name, on, mode string
		locks          int
	}{
		{"shared, store/memory", "mem", "shared", heldLocks},
		{"exclusive, each of its own name, store/memory", "mem", "exclusive", heldLocks},
		{"shared, store/dir", "dir", "shared", heldLocks},
		{"none", "mem", "shared", 0},
	} {
		b.say("%d locks held: %s", c.locks, c.name)
		h := b.holder(c.on, c.mode, c.locks)
		second := time.Duration(float64(h.CPU) / h.Took.Seconds())
		all.rows = append(all.rows, row{name: c.name, cpu: times{second}, memory: sizes{h.Resident}, heap: sizes{h.Heap}, goroutines: h.Goroutines})
	}
	b.table = append(b.table, all)
}

// holder runs the process that holds them.
func (b *bench) holder(on, mode string, locks int) (h usage) {
	b.Helper()
	self, err := os.Executable()
	assert.OK(b, err)
	c := exec.Command(self)
	c.Args = []string{"hold", on, mode, strconv.Itoa(locks), b.TempDir()}
	c.Stderr = os.Stderr
	out, err := c.Output()
	assert.OK(b, err)
	assert.OK(b, json.Unmarshal(out, &h))
	// Each lock at half of its ttl; the window can begin or end between two.
	if least := int64(locks) * int64(heldFor) / int64(heldTTL); h.Renewals < least {
		b.Errorf("%d renewals in %v, and not %d or more", h.Renewals, h.Took, least)
	}
	return h
}

// usage is the measurements of that process.
type usage struct {
	Took       time.Duration // while it held the locks, and did nothing else
	CPU        time.Duration // of that time
	Renewals   int64
	Goroutines int
	Heap       int64
	Resident   int64
}

func init() { standIns["hold"] = hold }

// hold is the process that holds locks, STORE MODE LOCKS DIR, and does nothing else.
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
	h := usage{Took: time.Since(begin), CPU: cpu() - before, Renewals: renewals.Load() - renewed, Goroutines: runtime.NumGoroutine()}

	raw, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		return err
	}
	var size int64
	if _, err := fmt.Sscan(string(raw), &size, &h.Resident); err != nil {
		return err
	}
	h.Resident *= int64(os.Getpagesize())
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	h.Heap = int64(m.HeapAlloc)
	for _, k := range locks {
		if err := release(k); err != nil {
			return err
		}
	}
	return json.NewEncoder(os.Stdout).Encode(h)
}

// release returns an error if the lock was lost.
func release(k *replock.Lock) error {
	if lost := k.Lost(); lost != nil {
		return lost
	}
	return k.Release(context.Background())
}

// takeMany acquires n locks. Exclusive ones have different names.
func takeMany(s store.Store, exclusive bool, n int, observe func(replock.Event)) (locks []*replock.Lock, err error) {
	opts := replock.Options{TTL: heldTTL, Observe: observe}
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

// connections is the number of locks that the holders' process acquires or releases at once.
const connections = 8

// refreshing measures 1,000 shared holders on one MinIO, in one process instead of on many machines: their
// requests, and how they slow down another shared lock.
func (b *bench) refreshing() {
	n, window, least := rounds.Fewer(1000, 50), rounds.Fewer(time.Minute, 5*time.Second), rounds.Fewer(200, 3)
	at := onS3.on(onS3.shared(b))
	p := b.proxied(at)
	alone, beside := row{name: "alone"}, row{name: fmt.Sprintf("beside %d holders", n)}
	other := always(engine(b.B, warm(b.B, at.securely(p)+"&conditions=kept"), replock.Shared))
	for range least {
		alone.measure(b.B, p, other, false)
	}
	b.say("%d shared locks are acquired on MinIO", n)
	counting := &hookstore.Store{Store: warm(b.B, at.repo()+"&conditions=kept")}
	l, err := replock.New(counting, replock.Options{})
	assert.OK(b, err)
	locks := make([]*replock.Lock, n)
	eachOf(b.B, connections, n, func(i int) (err error) {
		locks[i], err = l.TryShared(b.Context(), "bench")
		return err
	})
	b.say("they are held for %v, and another lock is acquired", window)
	counting.Count()
	begin, used := time.Now(), cpu()
	for end := begin.Add(window); time.Now().Before(end) || beside.n < least; {
		beside.measure(b.B, p, other, false)
	}
	took := time.Since(begin)
	_, by := counting.Count()
	perSecond := func(d time.Duration) string { return ms(time.Duration(float64(d) / took.Seconds())) }
	b.notes = append(b.notes, fmt.Sprintf("%d shared holders, ttl %v, for %v: %s; CPU in each second %s ms of the holders' process, with the proxy and the other lock; another lock's acquire: p50 %s ms, p99 %s ms, n %d (alone: %s, %s)",
		n, replock.DefaultTTL, took.Round(time.Second), rates(by, took), perSecond(cpu()-used),
		ms(beside.took.median()), ms(beside.took.quantile(99)), beside.n, ms(alone.took.median()), ms(alone.took.quantile(99))))
	b.table = append(b.table, group{"shared lock on MinIO over TLS, on an open connection, beside shared holders that refresh", []row{alone, beside}})
	b.refreshAll(counting, locks)
	eachOf(b.B, connections, n, func(i int) error { return release(locks[i]) })
}

// refreshAll measures a refresh of all locks at one time, as after an outage.
func (b *bench) refreshAll(counting *hookstore.Store, locks []*replock.Lock) {
	each := make(times, len(locks))
	used, begin := cpu(), time.Now()
	counting.Count()
	eachOf(b.B, len(locks), len(locks), func(i int) error {
		start := time.Now()
		defer func() { each[i] = time.Since(start) }()
		return locks[i].Refresh(b.Context())
	})
	took := time.Since(begin)
	_, by := counting.Count()
	b.notes = append(b.notes, fmt.Sprintf("all %d refreshed at once: %s ms until the last, p50 %s ms, p99 %s ms; %s; CPU %s ms of the holders' process",
		len(locks), ms(took), ms(each.median()), ms(each.quantile(99)), rates(by, took), ms(cpu()-used)))
}

// rates returns the requests in each second, by kind.
func rates(by map[string]int, took time.Duration) string {
	var all []string
	for _, op := range slices.Sorted(maps.Keys(by)) {
		all = append(all, fmt.Sprintf("%.1f %s", float64(by[op])/took.Seconds(), op))
	}
	return strings.Join(all, ", ") + " requests in each second"
}
