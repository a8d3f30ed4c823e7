//go:build linux

// Demo records the two drawings of the README from real runs: demo.svg, which is what two terminals
// showed, and night.svg, which is what repolock history draws of a small night. It fails if a command
// of either doesn't end as it should. It needs rclone, bash and unshare (util-linux), which makes each
// terminal a host of its own: make demo-svg.
package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: demo DIRECTORY")
		os.Exit(64)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, "demo:", err)
		os.Exit(1)
	}
}

// hang is longer than anything lasts, on the busiest machine.
const hang = 5 * time.Minute

func run(ctx context.Context, out string) error {
	for _, p := range []struct {
		name string
		run  func(context.Context, *place) (drawing []byte, err error)
	}{{"demo.svg", demo}, {"night.svg", night}} {
		pl, err := newPlace(ctx)
		if err != nil {
			return err
		}
		drawing, err := p.run(ctx, pl)
		pl.remove()
		if err != nil {
			return fmt.Errorf("%s: %w", p.name, err)
		}
		if err := os.WriteFile(filepath.Join(out, p.name), drawing, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// place is a directory that all hosts see as /srv, with a repository and documents to back up.
type place struct {
	dir  string
	jobs []job
}

// The sizes of the documents, in KiB. rclone copies them with a limit of so many a second.
const (
	documents = 6 << 10
	mail      = 3 << 10
	limit     = "--bwlimit 1M"
)

func newPlace(ctx context.Context) (*place, error) {
	dir, err := os.MkdirTemp("", "repolock-demo-")
	if err != nil {
		return nil, err
	}
	p := &place{dir: dir}
	err = p.fill(ctx)
	if err != nil {
		p.remove()
	}
	return p, err
}

func (p *place) fill(ctx context.Context) error {
	for name, kib := range map[string]int{
		"documents/report.pdf": documents, "mail/inbox": mail, "remote/data/old/report.pdf": 1, ".config/rclone/rclone.conf": 0,
	} {
		name = filepath.Join(p.dir, name)
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(name, make([]byte, kib<<10), 0o644); err != nil {
			return err
		}
	}
	build := exec.CommandContext(ctx, "go", "build", "-o", filepath.Join(p.dir, "bin/repolock"), "github.com/repolock/repolock/cmd/repolock")
	build.Stderr = os.Stderr
	return build.Run()
}

// remove ends what still runs there, and removes the place.
func (p *place) remove() {
	for _, j := range p.jobs {
		if j.ProcessState == nil {
			_ = j.Process.Kill()
			_ = j.Wait()
		}
	}
	_ = os.RemoveAll(p.dir)
}

// host returns a command that runs with a host name of its own, and with the place as /srv. The
// process that it starts becomes the command.
func (p *place) host(ctx context.Context, name string, command ...string) *exec.Cmd {
	enter := `hostname "$0" && mount --bind "$PLACE" /srv && cd /srv && exec "$@"`
	cmd := exec.CommandContext(ctx, "unshare", append([]string{"--map-root-user", "--mount", "--uts", "--", "sh", "-c", enter, name}, command...)...)
	cmd.Env = []string{
		"PLACE=" + p.dir, "PATH=/srv/bin:/usr/local/bin:/usr/bin:/bin", "HOME=/srv", "LC_ALL=C.UTF-8", "TERM=xterm", "PS1=" + prompt(name),
		"REPOLOCK_REPO=/srv/remote", "RCLONE_CONFIG_REMOTE_TYPE=alias", "RCLONE_CONFIG_REMOTE_REMOTE=/srv/remote/data",
	}
	return cmd
}

// prompt is that of a host's shell.
func prompt(host string) string { return host + "$ " }

// demo is two terminals: a backup, a prune that is refused and then waits, and a backup that is
// killed.
func demo(ctx context.Context, p *place) ([]byte, error) {
	web, err := p.terminal(ctx, "web", 7)
	if err != nil {
		return nil, err
	}
	defer web.close()
	store, err := p.terminal(ctx, "store", 32)
	if err != nil {
		return nil, err
	}
	defer store.close()
	const prune = "-- rclone delete remote:old"
	for _, step := range []func() error{
		func() error {
			return web.enter("repolock backup -- rclone copy " + limit + " documents remote:documents")
		},
		func() error { return p.holds(ctx) },
		func() error { return store.run(ctx, "repolock status") },
		func() error { return store.run(ctx, "repolock prune "+prune+"; echo \"exit code $?\"") },
		func() error { return store.shows(ctx, "exit code 75") },
		func() error { return store.enter("repolock prune --wait 15m " + prune + " && echo pruned") },
		func() error { return store.shows(ctx, "waiting ") },
		func() error { return web.ends(ctx) },
		func() error { return store.ends(ctx) },
		func() error { return store.shows(ctx, "pruned"+prompt(store.host)) },
		func() error {
			return web.enter("repolock backup --ttl 10s -- rclone copy " + limit + " mail remote:mail")
		},
		func() error { return p.holds(ctx) },
		web.killed,
		func() error { return web.shows(ctx, "Killed") },
		func() error { return store.enter("repolock prune --wait 15m " + prune + " && echo free") },
		func() error { return store.shows(ctx, "waiting ") },
		func() error { return store.shows(ctx, "free"+prompt(store.host)) },
	} {
		if err := step(); err != nil {
			return nil, err
		}
	}
	return animation(web, store)
}

// holds waits until there is a shared lock.
func (p *place) holds(ctx context.Context) error {
	return waitFor(ctx, "the backup's lock", func() bool {
		locks, err := filepath.Glob(filepath.Join(p.dir, "remote/index/lock.shared/*"))
		return err == nil && len(locks) > 0
	})
}

func waitFor(ctx context.Context, what string, is func() bool) error {
	for end := time.Now().Add(hang); !is(); time.Sleep(20 * time.Millisecond) {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if time.Now().After(end) {
			return fmt.Errorf("waited too long for %s", what)
		}
	}
	return nil
}

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
