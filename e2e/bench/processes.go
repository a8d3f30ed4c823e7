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
	if b.lacks("flock") {
		all = append([]*program{bare}, ours...)
	}
	b.say("whole processes")
	if err := measurePrograms(ctx, all, b.process, b.memory); err != nil {
		return err
	}
	b.table = append(b.table, group{"whole process on a directory, × against true", rows(all)})
	if b.lacks("flock") {
		b.table = append(b.table, group{"× against flock", []row{lacking("flock FILE true", "flock")}})
		return nil
	}
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
