//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// subject is a command line, with the measurements of its process.
type subject struct {
	heading string // begins a group
	name    string
	args    []string
	env     []string
	fails   bool // its exit code isn't 0
	// whole is set if it isn't one process. The instructions of such a one aren't counted:
	// Valgrind can't follow an execve(2) of /proc/self/exe.
	whole bool

	instructions []float64
	faults       []float64 // of all its processes
	cpu, took    []float64 // in milliseconds
}

var total = regexp.MustCompile(`I +refs: +([0-9,]+)`)

// count counts the instructions in user mode.
func (s *subject) count(ctx context.Context, times int) error {
	if s.whole {
		return nil
	}
	for range times {
		args := append([]string{"--tool=cachegrind", "--cache-sim=no", "--cachegrind-out-file=/dev/null"}, s.args...)
		c := exec.CommandContext(ctx, "valgrind", args...)
		c.Env = append(os.Environ(), s.env...)
		out, err := c.CombinedOutput()
		if err := s.failure(err); err != nil {
			return fmt.Errorf("%w: %s", err, out)
		}
		found := total.FindSubmatch(out)
		if found == nil {
			// It has executed another program, as run --no-lock does.
			return s.countUntilExec(ctx, times)
		}
		n, err := strconv.ParseFloat(strings.ReplaceAll(string(found[1]), ",", ""), 64)
		if err != nil {
			return err
		}
		s.instructions = append(s.instructions, n)
	}
	return nil
}

// countUntilExec is count for a process that becomes another program. Valgrind counts nothing
// of it, unless it follows it, and then the other program alone. So this one must not be found.
func (s *subject) countUntilExec(ctx context.Context, times int) error {
	last := len(s.args) - 1
	if s.fails || s.args[last] != "true" {
		return errors.New(s.name + ": Valgrind counts no instructions")
	}
	other := *s
	other.fails, other.args = true, append(slices.Clone(s.args[:last]), "/nonexistent")
	err := other.count(ctx, times)
	s.instructions = other.instructions
	return err
}

// time runs it once.
func (s *subject) time(ctx context.Context) error {
	c := exec.CommandContext(ctx, s.args[0], s.args[1:]...)
	c.Env = append(os.Environ(), s.env...)
	start := time.Now()
	err := c.Run()
	took := time.Since(start)
	if err := s.failure(err); err != nil {
		return err
	}
	usage, ok := c.ProcessState.SysUsage().(*syscall.Rusage)
	if !ok {
		return errors.New("no usage")
	}
	s.faults = append(s.faults, float64(usage.Minflt+usage.Majflt))
	s.cpu = append(s.cpu, ms(c.ProcessState.UserTime()+c.ProcessState.SystemTime()))
	s.took = append(s.took, ms(took))
	return nil
}

// failure returns the error of a process that should have ended otherwise.
func (s *subject) failure(err error) error {
	_, exited := errors.AsType[*exec.ExitError](err)
	if s.fails && exited || !s.fails && err == nil {
		return nil
	}
	return fmt.Errorf("%s: it ended with %v", s.name, err)
}

func ms(d time.Duration) float64 { return d.Seconds() * 1000 }
