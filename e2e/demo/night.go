//go:build linux

package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"
)

// job is a command of the night that runs on a host.
type job struct {
	*exec.Cmd
	name string
}

func (p *place) job(ctx context.Context, host string, command ...string) (job, error) {
	j := job{p.host(ctx, host, command...), host + ": " + fmt.Sprint(command)}
	j.Env = append(j.Env, "REPOLOCK_AUDIT=/srv/audit.jsonl")
	err := j.Start()
	if err == nil {
		p.jobs = append(p.jobs, j)
	}
	return j, err
}

// ends waits for a job, which must exit with a code: -1 if it was killed.
func (j job) ends(code int) error {
	_ = j.Wait()
	if got := j.ProcessState.ExitCode(); got != code {
		return fmt.Errorf("%s: exit code %d, not %d", j.name, got, code)
	}
	return nil
}

// night is a night of a minute, in which a second stands for ten minutes: hosts that back up and
// restore side by side, a prune that is refused, one that waits and a backup behind it, and a backup
// that is killed, whose lock the next prune removes.
func night(ctx context.Context, p *place) ([]byte, error) {
	backup := func(host string, mib int, flags ...string) (job, error) {
		from := fmt.Sprintf("night/%s-%d", host, mib)
		if err := p.file(from+"/data", mib); err != nil {
			return job{}, err
		}
		command := append([]string{"repolock", "backup", "--quiet", "--ttl", "10s"}, flags...)
		return p.job(ctx, host, append(command, "--", "rclone", "copy", "--bwlimit", "1M", from, "remote:"+from)...)
	}
	prune := func(mib int, flags ...string) (job, error) {
		if err := p.file(fmt.Sprintf("kept-%d/data", mib), mib); err != nil {
			return job{}, err
		}
		command := append([]string{"repolock", "prune", "--quiet", "--ttl", "10s"}, flags...)
		return p.job(ctx, "store", append(command, "--", "rclone", "sync", "--bwlimit", "1M", fmt.Sprintf("kept-%d", mib), "remote:kept")...)
	}
	var web, db, mail, late, restore, refused, waits, killed, next job
	for _, step := range []func() (err error){
		func() (err error) { web, err = backup("web", 14); return err },
		func() error { return p.holds(ctx) },
		func() (err error) { time.Sleep(2 * time.Second); db, err = backup("db", 6); return err },
		func() (err error) { time.Sleep(3 * time.Second); mail, err = backup("mail", 16); return err },
		func() (err error) { time.Sleep(2 * time.Second); refused, err = prune(1); return err },
		func() error { return refused.ends(75) },
		func() error { return db.ends(0) },
		func() (err error) {
			restore, err = p.job(ctx, "db", "repolock", "restore", "--quiet", "--ttl", "10s", "--", "rclone", "copy", "--bwlimit", "1M", "remote:night/db-6", "restored")
			return err
		},
		func() (err error) { waits, err = prune(5, "--wait", "15m"); return err },
		func() error { return p.waits(ctx) },
		func() (err error) { late, err = backup("db", 7, "--wait", "15m"); return err },
		func() error { return web.ends(0) },
		func() error { return restore.ends(0) },
		func() error { return mail.ends(0) },
		func() error { return waits.ends(0) },
		func() error { return late.ends(0) },
		func() (err error) { killed, err = backup("web", 30); return err },
		func() error { return p.holds(ctx) },
		func() error { time.Sleep(4 * time.Second); return killed.Process.Kill() },
		func() error { return killed.ends(-1) },
		func() (err error) { next, err = prune(4, "--wait", "15m"); return err },
		func() error { return next.ends(0) },
	} {
		if err := step(); err != nil {
			return nil, err
		}
	}
	drawing := filepath.Join(p.dir, "night.svg")
	history := exec.CommandContext(ctx, filepath.Join(p.dir, "bin/repolock"), "history", "--svg", drawing, filepath.Join(p.dir, "audit.jsonl"))
	if said, err := history.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("repolock history: %w: %s", err, said)
	}
	return os.ReadFile(drawing)
}

// waits waits until a prune waits for its turn.
func (p *place) waits(ctx context.Context) error {
	return waitFor(ctx, "the prune's place in the queue", func() bool {
		tickets, err := filepath.Glob(filepath.Join(p.dir, "remote/index/lock.intent/*"))
		return err == nil && len(tickets) > 0
	})
}

// file writes a file of so many MiB.
func (p *place) file(name string, mib int) error {
	name = filepath.Join(p.dir, name)
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		return err
	}
	return os.WriteFile(name, make([]byte, mib<<20), 0o644)
}
