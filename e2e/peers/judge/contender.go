//go:build linux

package main

import (
	"bytes"
	"context"
	"debug/buildinfo"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/repolock/repolock/internal/clock"
	"github.com/repolock/repolock/internal/fault"
	"github.com/repolock/repolock/internal/judge"
	"github.com/repolock/repolock/internal/procstat"
)

// contender is one wrapper of a trial, a process that takes the lock, with all processes that it starts.
type contender struct {
	id     string
	client int
	mode   judge.Mode
	cmd    *exec.Cmd
	out    string        // the path of its output
	ended  chan struct{} // closed when the wrapper has ended

	// trial.mu guards the fields below.
	events  []judge.Event
	pid     int           // of the child; 0 until it runs
	in      time.Duration // the time of the child's first entry
	last    time.Duration // the time of the child's last entry so far
	start   uint64        // procstat.Stat.Start of the child
	over    bool          // events has the End
	refused bool          // the wrapper ended by itself, and started no child
}

func (t *trial) launch(client int, mode judge.Mode, hold time.Duration, env ...string) (*contender, error) {
	t.mu.Lock()
	t.started++
	c := &contender{id: fmt.Sprintf("c%d-%d", client, t.started), client: client, mode: mode, ended: make(chan struct{})}
	t.mu.Unlock()
	line := t.Exclusive
	if mode == judge.Shared {
		line = t.Shared
	}
	args, err := around(line, []string{filepath.Join(t.dir, program), witnessCommand, c.id, t.written.Name(), hold.String()})
	if err != nil {
		return nil, err
	}
	c.out = filepath.Join(t.dir, c.id+".out")
	out, err := os.Create(c.out)
	if err != nil {
		return nil, err
	}
	defer out.Close()
	c.cmd = exec.Command(args[0], args[1:]...)
	// A file: with a pipe, Wait would wait for a child that outlives the wrapper.
	c.cmd.Stdout, c.cmd.Stderr = out, out
	c.cmd.Env = slices.Concat(os.Environ(), env, []string{c.mark(t)})
	// In a group of its own, so that a Ctrl-C at the terminal reaches only us, and the kernel continues the
	// processes that we have stopped if we are killed.
	c.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	t.mu.Lock() // read must not see an entry of the child before contenders has it
	defer t.mu.Unlock()
	at := clock.System{}.Elapsed()
	if err := c.cmd.Start(); err != nil {
		return nil, notAcquired(fmt.Sprintf("%s can't be started: %v", args[0], err))
	}
	t.note(c, judge.Event{Kind: judge.Start, At: at, Client: client, Mode: mode})
	t.contenders[c.id] = c
	go func() {
		_ = c.cmd.Wait() // its error is the state
		close(c.ended)
	}()
	return c, nil
}

// mark is the environment variable that marks all processes of a contender.
func (c *contender) mark(t *trial) string { return mark + "=" + t.dir + "/" + c.id + "." }

func (c *contender) wrapped() bool {
	select {
	case <-c.ended:
		return false
	default:
		return true
	}
}

// gone reports whether the child has certainly ended. trial.mu is held.
func (c *contender) gone() bool {
	if c.pid == 0 {
		return false
	}
	p, ok := procstat.Read(strconv.Itoa(c.pid))
	return !ok || p.Ended || p.Start != c.start
}

// says returns the last line that the contender has printed.
func (c *contender) says() string {
	text, _ := os.ReadFile(c.out)
	return lastLine(string(text[max(0, len(text)-maxOutput):]))
}

const maxOutput = 16 << 10

func lastLine(output string) string {
	lines := strings.Split(strings.TrimSpace(output), "\n")
	return lines[len(lines)-1]
}

// refusal returns the reason why a contender didn't acquire the lock, for an error.
func (c *contender) refusal() string {
	how := "it was still trying"
	if !c.wrapped() {
		how = c.cmd.ProcessState.String()
	}
	if last := c.says(); last != "" {
		return how + ": " + last
	}
	return how
}

// entered notes the first entry of a contender's child. It fails if the child is in another namespace,
// where pids name other processes, or the clock differs from ours.
func (c *contender) entered(e judge.Event) error {
	if e.Text != namespaces() {
		return fmt.Errorf("%w: the child of %s is in another pid or time namespace: the wrapper must not start it in a container", fault.Unjudged, c.id)
	}
	p, _ := procstat.Read(strconv.Itoa(e.PID)) // the child can have ended already
	c.pid, c.start, c.in = e.PID, p.Start, e.At
	return nil
}

func (t *trial) inflict(c *contender, f Fault) error {
	comm, _ := os.ReadFile("/proc/" + strconv.Itoa(c.cmd.Process.Pid) + "/comm")
	t.add(c, judge.Event{Kind: judge.Fault, Text: fmt.Sprintf("%s (the wrapper is %.16q)", f, comm[:max(0, len(comm)-1)])})
	return t.signal(c, f, map[bool]syscall.Signal{true: syscall.SIGSTOP, false: syscall.SIGKILL}[f.continues()])
}

// signal signals the processes of a contender that a fault names.
func (t *trial) signal(c *contender, f Fault, sig syscall.Signal) error {
	wrapper := c.cmd.Process.Pid
	var errs []error
	switch f {
	case KillAll:
		procstat.SignalMarked(c.mark(t), wrapper, syscall.SIGSTOP) // none may notice the death of another
		procstat.SignalMarked(c.mark(t), wrapper, sig)
	case StopAll:
		procstat.SignalMarked(c.mark(t), wrapper, sig)
	case KillWrapper, StopWrapper:
		errs = append(errs, c.cmd.Process.Signal(sig))
	case StopChild:
		errs = append(errs, c.child(sig))
	case StopBoth:
		errs = append(errs, c.cmd.Process.Signal(sig), c.child(sig))
	}
	return errors.Join(errs...)
}

// child signals the child, unless it has ended: another process could have its pid then.
func (c *contender) child(sig syscall.Signal) error {
	if c.gone() {
		return os.ErrProcessDone
	}
	return syscall.Kill(c.pid, sig)
}

func (t *trial) resume(c *contender, f Fault) {
	t.add(c, judge.Event{Kind: judge.Fault, Text: continued})
	_ = t.signal(c, f, syscall.SIGCONT) // fails if they have been killed meanwhile
}

// trialGrace is the time between SIGTERM and SIGKILL.
const trialGrace = 3 * time.Second

// finish ends all processes of a round, and notes their ends.
func (t *trial) finish() error {
	t.mu.Lock()
	var all []*contender
	for _, c := range t.contenders {
		if !c.over {
			all = append(all, c)
		}
	}
	t.mu.Unlock()
	for _, c := range all {
		if c.wrapped() {
			_ = syscall.Kill(-c.cmd.Process.Pid, syscall.SIGTERM)
			_ = syscall.Kill(-c.cmd.Process.Pid, syscall.SIGCONT)
		}
	}
	limit, cancel := context.WithTimeout(context.Background(), trialGrace)
	defer cancel()
	for _, c := range all {
		select {
		case <-c.ended:
		case <-limit.Done():
		}
	}
	for range 500 {
		procstat.SignalMarked(mark+"="+t.dir+"/", 0, syscall.SIGKILL)
		if len(procstat.Marked(mark+"="+t.dir+"/")) == 0 {
			break
		}
		<-clock.System{}.After(10 * time.Millisecond) // a process that waits for a disk ends late
	}
	for _, c := range all {
		<-c.ended
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if err := t.read(); err != nil {
		return err
	}
	for _, c := range all {
		t.end(c)
	}
	return nil
}

// end notes that all processes of a contender have ended. trial.mu is held.
func (t *trial) end(c *contender) {
	if !c.over {
		c.over = true
		t.note(c, judge.Event{Kind: judge.End, Text: strings.TrimSpace(c.cmd.ProcessState.String() + "\n" + c.says())})
	}
}

// mark is the environment variable by which a trial finds its processes.
const mark = "REPOLOCK_TEST_JUDGE"

// seesFaketime reports whether one of the processes asks libfaketime for the time. A Go program can
// load that library, but asks the kernel.
func seesFaketime(pids []int) bool {
	return slices.ContainsFunc(pids, func(pid int) bool {
		proc := "/proc/" + strconv.Itoa(pid)
		maps, _ := os.ReadFile(proc + "/maps")
		_, err := buildinfo.ReadFile(proc + "/exe")
		return bytes.Contains(maps, []byte("libfaketime")) && err != nil
	})
}
