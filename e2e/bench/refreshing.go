//go:build linux

package main

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/repolock/repolock/internal/parallel"
	"github.com/repolock/repolock/internal/test/hookstore"
	"github.com/repolock/repolock/replock"
)

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
