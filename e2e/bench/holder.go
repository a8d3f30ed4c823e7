//go:build linux

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/repolock/repolock/replock"
	"github.com/repolock/repolock/store"
	"github.com/repolock/repolock/store/dir"
	"github.com/repolock/repolock/store/mem"
)

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
