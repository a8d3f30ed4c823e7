//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// settled is enough for a process to queue up behind another one.
const settled = 300 * time.Millisecond

// handOver measures the time from the end of the command that has the exclusive lock to the start of
// the next holder's command, which waits for it, on a directory, beside flock.
func (b *bench) handOver(ctx context.Context) error {
	b.say("hand-over")
	repo := filepath.Join(b.work, "handed")
	if err := os.Mkdir(repo, 0o700); err != nil {
		return err
	}
	all := []*program{
		{row{name: "flock FILE, to the next flock FILE"}, []string{"flock", filepath.Join(b.work, "handed-file")}},
		{row{name: "repolock prune, to repolock prune --wait"}, []string{b.repolock, "prune", "--quiet", "--wait", "10m", "--repo", repo, "--"}},
	}
	if b.lacks("flock") {
		all = all[1:]
	}
	for range b.handed {
		for _, p := range all {
			took, err := handOver(ctx, p.args)
			if err != nil {
				return fmt.Errorf("%s: %w", p.name, err)
			}
			p.n++
			p.took = append(p.took, took)
		}
	}
	g := group{"release to the waiter's command, on a directory", rows(all)}
	if b.lacks("flock") {
		g.rows = append(g.rows, lacking("flock FILE", "flock"))
	}
	b.table = append(b.table, g)
	return nil
}

// handOver hands a lock over once, from one process to another, both with this command before theirs.
func handOver(ctx context.Context, lock []string) (time.Duration, error) {
	holds := exec.CommandContext(ctx, lock[0], append(lock[1:len(lock):len(lock)], "sh", "-c", "echo; read line; exit 0")...)
	in, err := holds.StdinPipe()
	if err != nil {
		return 0, err
	}
	out, err := holds.StdoutPipe()
	if err != nil {
		return 0, err
	}
	if err := holds.Start(); err != nil {
		return 0, err
	}
	if _, err := io.ReadFull(out, make([]byte, 1)); err != nil { // it has the lock
		return 0, errors.Join(err, holds.Wait())
	}
	waits := exec.CommandContext(ctx, lock[0], append(lock[1:len(lock):len(lock)], "date", "+%s%N")...)
	var began strings.Builder
	waits.Stdout = &began
	if err := waits.Start(); err != nil {
		return 0, err
	}
	time.Sleep(settled)
	ended := time.Now()
	in.Close()
	err = waits.Wait()
	if err = errors.Join(err, holds.Wait()); err != nil {
		return 0, err
	}
	at, err := strconv.ParseInt(strings.TrimSpace(began.String()), 10, 64)
	if err != nil {
		return 0, err
	}
	return time.Unix(0, at).Sub(ended), nil
}
