//go:build linux

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"time"
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
