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
