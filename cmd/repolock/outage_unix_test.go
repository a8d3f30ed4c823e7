//go:build unix

package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/repolock/repolock/internal/audit"
	"github.com/repolock/repolock/internal/fault"
	"github.com/repolock/repolock/internal/test/assert"
	"github.com/repolock/repolock/internal/test/states"
)

// outage is a repolock whose repository becomes unreachable.
type outage struct {
	t      *testing.T
	dir    string
	env    []string // beside our own
	cmd    *exec.Cmd
	output said
	ended  chan struct{}
}

// newOutage returns an outage with an empty repository.
func newOutage(t *testing.T) *outage {
	t.Helper()
	t.Parallel()
	o := &outage{t: t, dir: t.TempDir(), ended: make(chan struct{})}
	assert.OK(t, os.Mkdir(o.path("repo"), 0o700))
	return o
}

// begin starts a repolock around a command that ticks until there is a file "end", and then
// runs another. Then begin takes the repository away.
func (o *outage) begin(last string) {
	o.t.Helper()
	o.prune("10s", last)
	o.rename("repo", "away")
	until(o.t, "the command is stopped", func() bool { return states.Stopped(o.pid()) })
}

// pid returns the pid of the command.
func (o *outage) pid() int {
	o.t.Helper()
	raw, err := os.ReadFile(o.path("pid"))
	assert.OK(o.t, err)
	pid, err := strconv.Atoi(strings.TrimSpace(string(raw)))
	assert.OK(o.t, err)
	return pid
}

// prune starts a repolock around the command that begin describes.
func (o *outage) prune(ttl, last string, flags ...string) {
	o.t.Helper()
	o.around(ttl, append(flags, "--", "sh", "-c", "echo $$ >pid; while [ ! -e end ]; do echo >>ticks; sleep 0.25; done; "+last)...)
}

// around starts a repolock around a command that ticks.
func (o *outage) around(ttl string, args ...string) {
	o.t.Helper()
	o.start(append([]string{"prune", "--ttl", ttl, "--audit", o.path("log")}, args...)...)
	until(o.t, "the command runs", o.ticks)
}

// start starts a repolock.
func (o *outage) start(args ...string) {
	o.t.Helper()
	o.cmd = o.command("repo", args...)
	o.cmd.Stdout, o.cmd.Stderr = &o.output, &o.output
	assert.OK(o.t, o.cmd.Start())
	go func() { _ = o.cmd.Wait(); close(o.ended) }()
	o.t.Cleanup(func() {
		_ = o.cmd.Process.Kill()
		<-o.ended
		if o.t.Failed() {
			o.t.Logf("it said:\n%s", o.output.String())
		}
	})
}

func (o *outage) path(name string) string { return filepath.Join(o.dir, name) }

func (o *outage) command(repo string, args ...string) *exec.Cmd {
	o.t.Helper()
	cmd := exec.Command("repolock", append([]string{"-r", o.path(repo)}, args...)...)
	cmd.Dir, cmd.Env = o.dir, append(os.Environ(), o.env...)
	// The kernel continues the stopped processes of an orphaned group: setpgid(2).
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	return cmd
}

func (o *outage) rename(from, to string) {
	o.t.Helper()
	assert.OK(o.t, os.Rename(o.path(from), o.path(to)))
}

// ticks reports whether the command runs.
func (o *outage) ticks() bool {
	before, _ := os.ReadFile(o.path("ticks"))
	time.Sleep(time.Second)
	now, _ := os.ReadFile(o.path("ticks"))
	return len(now) > len(before)
}

// code lets the command end, and returns repolock's exit code.
func (o *outage) code() int {
	o.t.Helper()
	write(o.t, o.path("end"), "")
	select {
	case <-o.ended:
	case <-time.After(hang):
		o.t.Fatal("it doesn't end")
	}
	return o.cmd.ProcessState.ExitCode()
}

// ends lets the command end, and checks repolock's exit code.
func (o *outage) ends(want int) {
	o.t.Helper()
	code := o.code()
	assert.That(o.t, code == want, "exit code %d, want %d", code, want)
}

// records returns all records of the log.
func (o *outage) records() []audit.Record {
	o.t.Helper()
	file, err := os.Open(o.path("log"))
	assert.OK(o.t, err)
	defer file.Close()
	records, skipped, err := audit.Read(file)
	assert.Need(o.t, err == nil && skipped == 0, "%d lines skipped, %v", skipped, err)
	return records
}

// log returns the records of the log without the failed refreshes. The rest must be these
// events.
func (o *outage) log(want ...string) []audit.Record {
	o.t.Helper()
	records := o.records()
	var kept []audit.Record
	var events []string
	for i, r := range records {
		assert.That(o.t, i == 0 || !r.Timestamp.Before(records[i-1].Timestamp), "%s is out of order", r.Event)
		if r.Event != audit.HeartbeatFailed {
			kept, events = append(kept, r), append(events, r.Event)
		}
	}
	assert.Need(o.t, slices.Equal(events, want), "logged: %q", events)
	return kept
}

// run runs a repolock that must succeed, and returns its output.
func (o *outage) run(repo string, args ...string) string {
	o.t.Helper()
	return assert.Output(o.t, o.command(repo, args...))
}

// tells checks that the history has one lock, with a text.
func (o *outage) tells(text string) {
	o.t.Helper()
	cmd := exec.Command("repolock", "history", "log")
	cmd.Dir = o.dir
	h := assert.Output(o.t, cmd)
	assert.That(o.t, strings.Count(h, "\n") == 2 && strings.Contains(h, text), "history:\n%s", h)
}

// exists reports whether there is a file.
func (o *outage) exists(name string) bool {
	_, err := os.Stat(o.path(name))
	return err == nil
}

// TestAuditResumed: the log says that a lock was lost in an outage and resumed. A repolock
// that the command runs still recognizes the lock, although its id has changed.
func TestAuditResumed(t *testing.T) {
	o := newOutage(t)
	o.begin(`repolock -r repo prune --wait forever -- true; test $? = 75`)
	o.rename("away", "repo")
	until(t, "the command goes on", o.ticks)
	code := o.code()
	assert.That(t, code == 0 && strings.Contains(o.output.String(), "the lock that this very command runs under"), "exit code %d", code)
	r := o.log(audit.Acquired, audit.Lost, audit.Paused, audit.Resumed, audit.Released)
	acquired, lost, paused, resumed, released := r[0], r[1], r[2], r[3], r[4]
	for _, r := range []audit.Record{lost, paused} {
		assert.That(t, r.RequestID == acquired.RequestID && r.LockPath == acquired.LockPath && r.Operation == "prune" && r.Mode == "exclusive" && r.PID == o.cmd.Process.Pid,
			"%+v", r)
	}
	assert.That(t, lost.Error != "" && lost.HeldDurationSeconds != nil && *lost.HeldDurationSeconds >= 5 && paused.Reason == "lock_lost",
		"lost %+v, paused %+v", lost, paused)
	assert.That(t, resumed.ResumedFrom == acquired.RequestID && resumed.RequestID != acquired.RequestID && resumed.LockPath != acquired.LockPath,
		"resumed %+v", resumed)
	assert.That(t, released.RequestID == resumed.RequestID && released.Result == audit.Success && *released.ExitCode == 0 &&
		*released.HeldDurationSeconds > *lost.HeldDurationSeconds, "released %+v", released)
	o.tells("success; stopped for ")
}

// TestAuditPassed: a lock that another holder has had meanwhile is lost for good, in an outage and after a step of
// the wall clock.
func TestAuditPassed(t *testing.T) {
	t.Parallel()
	t.Run("outage", func(t *testing.T) {
		o := newOutage(t)
		o.begin("touch went-on")
		o.run("away", "prune", "--ttl", "10s", "--wait", "forever", "--", "true")
		o.passed()
		r := o.log(audit.Acquired, audit.Lost, audit.Paused, audit.Lost, audit.Released)
		lost := r[3]
		assert.That(t, lost.RequestID == r[0].RequestID && strings.Contains(lost.Error, "lock lost: "), "%+v", lost)
		released := r[4]
		assert.That(t, released.Result == audit.Failure && *released.ExitCode == 128+9, "%+v", released)
		o.tells("lost: ")
	})
	t.Run("clocks part", func(t *testing.T) {
		o := part(t)
		o.run("away", "break-lock", "--yes")
		o.run("away", "prune", "--", "true")
		o.passed()
	})
}

// passed ends the outage after another holder has had the lock: the command must not go on.
func (o *outage) passed() {
	o.t.Helper()
	o.rename("away", "repo")
	o.ends(fault.ExitLost)
	assert.That(o.t, !o.exists("went-on"), "the command has gone on")
}

// TestNestedIsPaused: a repolock under another's lock is stopped with it, and so is its
// command, although that is in another group than the stopped one. Both continue with it.
func TestNestedIsPaused(t *testing.T) {
	o := newOutage(t)
	assert.OK(t, os.Mkdir(o.path("inner"), 0o700))
	o.start("restore", "--ttl", "10s", "--", "repolock", "-r", o.path("inner"), "prune", "--on-lost", "warn", "--",
		"sh", "-c", "while [ ! -e end ]; do echo >>ticks; sleep 0.25; done")
	until(t, "the command runs", o.ticks)
	o.rename("repo", "away")
	time.Sleep(11 * time.Second) // from now on another holder can acquire the lock
	assert.That(t, !o.ticks(), "it runs on without the outer lock")
	o.rename("away", "repo")
	until(t, "the command goes on", o.ticks)
	o.ends(0)
}

// suspend stops a repolock and its command as Ctrl-Z does, waits, and continues them as fg does.
func (o *outage) suspend(wait time.Duration) (took time.Duration) {
	o.t.Helper()
	assert.OK(o.t, o.cmd.Process.Signal(syscall.SIGTSTP))
	until(o.t, "repolock is stopped", func() bool { return states.Stopped(o.cmd.Process.Pid) })
	begin := time.Now() // the first record is older
	records := o.records()
	assert.That(o.t, records[len(records)-1].Event == audit.Suspended, "the last record of a stopped repolock is %s", records[len(records)-1].Event)
	o.tells("stopped since 20")
	time.Sleep(wait)
	took = time.Since(begin)
	assert.OK(o.t, o.cmd.Process.Signal(syscall.SIGCONT))
	until(o.t, "the command goes on", o.ticks)
	return took
}

// TestAuditSuspended: the log has the begin and the end of a stop by Ctrl-Z, and history its length. If the
// lock is lost meanwhile, the stop lasts until the command goes on under the resumed lock.
func TestAuditSuspended(t *testing.T) {
	t.Parallel()
	for ttl, c := range map[string]struct {
		wait time.Duration
		want string
	}{
		"1h":  {2 * time.Second, "lock_acquired command_suspended command_continued lock_released"},
		"10s": {11 * time.Second, "lock_acquired command_suspended lock_lost lock_resumed command_continued lock_released"},
	} {
		t.Run(ttl, func(t *testing.T) {
			o := newOutage(t)
			o.around(ttl, "--", "ticker")
			took := o.suspend(c.wait)
			o.ends(0)
			var events []string
			for _, r := range o.records() {
				switch r.Event {
				case audit.Suspended, audit.Continued:
					assert.That(t, r.RequestID != "" && r.Operation == "prune" && r.PID == o.cmd.Process.Pid, "%+v", r)
					fallthrough
				case audit.Acquired, audit.Lost, audit.Resumed, audit.Released:
					events = append(events, r.Event)
				}
			}
			assert.Equal(t, strings.Join(events, " "), c.want, "logged")
			stops := audit.NewHistory(o.records()).Spans[0]
			assert.That(t, len(stops.Stops) == 1 && stops.StoppedFor() >= took, "stopped %+v, and not for %v", stops.Stops, took)
			o.tells("success; stopped for ")
		})
	}
}

// part begins an outage in which the wall clock is stepped by more than a minute.
func part(t *testing.T) *outage {
	t.Helper()
	o := newOutage(t)
	o.env = []string{stepVariable + "=" + o.path("step")}
	o.prune("60s", "touch went-on")
	o.rename("repo", "away")
	write(t, o.path("step.new"), "71s")
	o.rename("step.new", "step")
	until(t, "the command is stopped", func() bool { return !o.ticks() })
	return o
}

// TestClocksPart: after a step of the wall clock, as on a machine that its hypervisor paused, the command is stopped.
// It continues once repolock has looked at the lock and found it.
func TestClocksPart(t *testing.T) {
	o := part(t)
	assert.That(t, !o.ticks(), "it runs on before the lock was looked at")
	o.rename("away", "repo")
	until(t, "the command goes on", o.ticks)
	o.ends(0)
	for _, want := range []string{"the command is stopped until repolock has looked at the lock", "the command goes on"} {
		assert.That(t, strings.Count(o.output.String(), want) == 1, "not exactly one such message: %s", want)
	}
	r := o.log(audit.Acquired, audit.ClocksParted, audit.ClocksSettled, audit.Released)
	parted := r[1]
	assert.That(t, parted.RequestID == r[0].RequestID && parted.LockPath == r[0].LockPath && parted.PID == o.cmd.Process.Pid, "%+v", parted)
	o.tells("success; stopped for ")
}
