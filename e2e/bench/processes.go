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

	"golang.org/x/sys/unix"
)

// program is a command line, with the measurements of its process.
type program struct {
	row
	args []string
}

// processes measures how much repolock adds to a command that does nothing, on a directory,
// beside flock.
func (b *bench) processes(ctx context.Context) error {
	idle, err := exec.LookPath("true")
	if err != nil {
		return err
	}
	repo := filepath.Join(b.work, "repo")
	if err := os.Mkdir(repo, 0o700); err != nil {
		return err
	}
	run := func(lock string) []string {
		return []string{b.repolock, "run", lock, "--operation", "bench", "--repo", repo, "--", idle}
	}
	bare := &program{row{name: "true"}, []string{idle}}
	flock := &program{row{name: "flock FILE true"}, []string{"flock", filepath.Join(b.work, "file"), idle}}
	ours := []*program{
		{row{name: "repolock version"}, []string{b.repolock, "version"}},
		{row{name: "repolock run --no-lock -- true"}, run("--no-lock")},
		{row{name: "repolock run --shared -- true"}, run("--shared")},
		{row{name: "repolock run --exclusive -- true"}, run("--exclusive")},
	}
	all := append([]*program{bare, flock}, ours...)
	b.say("whole processes")
	if err := measurePrograms(ctx, all, b.process, b.memory); err != nil {
		return err
	}
	b.table = append(b.table, group{"whole process on a directory, × against true", rows(all)})
	against := group{"whole process on a directory, × against flock", rows(all[1:])}
	for _, p := range ours {
		against.rows = append(against.rows, less(p.row, flock.row))
	}
	b.table = append(b.table, against)
	return nil
}

// measurePrograms runs them in turn, so that other load on the machine meets all of them. It
// measures their memory in runs of its own, because that takes a detour.
func measurePrograms(ctx context.Context, all []*program, times, memory int) error {
	for range times {
		for _, p := range all {
			if err := p.time(ctx); err != nil {
				return err
			}
		}
	}
	for range memory {
		for _, p := range all {
			peak, err := peakMemory(ctx, p.args)
			if err != nil {
				return fmt.Errorf("%s: %w", p.name, err)
			}
			p.memory = append(p.memory, peak)
		}
	}
	return nil
}

func rows(all []*program) (rows []row) {
	for _, p := range all {
		rows = append(rows, p.row)
	}
	return rows
}

// time runs it once.
func (p *program) time(ctx context.Context) error {
	c := exec.CommandContext(ctx, p.args[0], p.args[1:]...)
	start := time.Now()
	err := c.Run()
	took := time.Since(start)
	if err != nil {
		return fmt.Errorf("%s: %w", p.name, err)
	}
	p.n++
	p.took = append(p.took, took)
	p.cpu = append(p.cpu, c.ProcessState.UserTime()+c.ProcessState.SystemTime())
	return nil
}

// less returns by how much each run took longer than the other program's next to it.
func less(r, other row) row {
	d := row{name: r.name + ", less flock", n: r.n}
	for i := range r.took {
		d.took = append(d.took, r.took[i]-other.took[i])
	}
	return d
}

// peakMemory runs a program and returns the most memory that it, or one of its
// own processes, has had resident.
//
// The kernel counts what a process had before it became the program, too, which
// in a child of ours is what we have ourselves. So a shell starts it, which has
// little, and has gone before the program begins: we inherit it, and hear its usage.
func peakMemory(ctx context.Context, args []string) (bytes int64, err error) {
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return 0, fmt.Errorf("becoming a subreaper: %w", err)
	}
	blocked, begin, err := os.Pipe()
	if err != nil {
		return 0, err
	}
	defer blocked.Close()
	defer begin.Close()
	script := `{ read -r begin <&3; exec "$@" 3<&-; } >/dev/null 2>&1 & echo $!`
	c := exec.CommandContext(ctx, "sh", append([]string{"-c", script, "sh"}, args...)...)
	c.ExtraFiles = []*os.File{blocked}
	out, err := c.Output()
	if err != nil {
		return 0, err
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(out)))
	if err != nil {
		return 0, err
	}
	if _, err := begin.WriteString("begin\n"); err != nil {
		return 0, err
	}
	return usageOf(pid)
}

// usageOf waits for a child to end well.
func usageOf(pid int) (peak int64, err error) {
	var status unix.WaitStatus
	var usage unix.Rusage
	for {
		_, err = unix.Wait4(pid, &status, 0, &usage)
		if !errors.Is(err, unix.EINTR) {
			break
		}
	}
	if err == nil && (!status.Exited() || status.ExitStatus() != 0) {
		err = fmt.Errorf("it failed: wait status %#x", int(status))
	}
	return usage.Maxrss << 10, err
}

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
	b.table = append(b.table, group{"release to the waiter's command, on a directory", rows(all)})
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
