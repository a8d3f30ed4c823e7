//go:build unix

package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/creack/pty"

	"github.com/repolock/repolock/internal/audit"
	"github.com/repolock/repolock/internal/test/states"
)

// outage is a repolock whose repository becomes unreachable.
type outage struct {
	t      *testing.T
	dir    string
	env    []string // beside our own
	bin    string   // "": the one in PATH
	as     *syscall.Credential
	cmd    *exec.Cmd
	output said
	ended  chan struct{}
}

// says reports whether the output contains a text.
func (o *outage) says(text string) bool { return strings.Contains(o.output.String(), text) }

// newOutage returns an outage with an empty repository.
func newOutage(t *testing.T) *outage {
	t.Helper()
	t.Parallel()
	o := &outage{t: t, dir: t.TempDir(), ended: make(chan struct{})}
	if err := os.Mkdir(o.path("repo"), 0o700); err != nil {
		t.Fatal(err)
	}
	return o
}

// begin starts a repolock around a command that ticks until there is a file "end", and then
// runs another. Then begin takes the repository away.
func (o *outage) begin(last string) {
	o.t.Helper()
	o.prune("10s", last)
	o.rename("repo", "away")
	raw, err := os.ReadFile(o.path("pid"))
	if err != nil {
		o.t.Fatal(err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(raw)))
	if err != nil {
		o.t.Fatal(err)
	}
	o.until("the command to be stopped", func() bool { return states.Stopped(pid) })
}

// prune starts a repolock around the command that begin describes.
func (o *outage) prune(ttl, last string, flags ...string) {
	o.t.Helper()
	o.around(ttl, append(flags, "--", "sh", "-c", "echo $$ >pid; while [ ! -e end ]; do echo >>ticks; sleep 0.1; done; "+last)...)
}

// around starts a repolock around a command that ticks.
func (o *outage) around(ttl string, args ...string) {
	o.t.Helper()
	o.start(append([]string{"prune", "--ttl", ttl, "--audit", o.path("log")}, args...)...)
	o.until("the command to run", o.ticks)
}

// start starts a repolock.
func (o *outage) start(args ...string) {
	o.t.Helper()
	o.cmd = o.command("repo", args...)
	o.cmd.Stdout, o.cmd.Stderr = &o.output, &o.output
	if err := o.cmd.Start(); err != nil {
		o.t.Fatal(err)
	}
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
	bin := o.bin
	if bin == "" {
		var err error
		if bin, err = exec.LookPath("repolock"); err != nil { // testscript.Main put it there
			o.t.Fatal(err)
		}
	}
	cmd := exec.Command(bin, append([]string{"-r", o.path(repo)}, args...)...)
	cmd.Dir, cmd.Env = o.dir, append(os.Environ(), o.env...)
	// The kernel continues the stopped processes of an orphaned group: setpgid(2).
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Credential: o.as}
	return cmd
}

func (o *outage) rename(from, to string) {
	o.t.Helper()
	if err := os.Rename(o.path(from), o.path(to)); err != nil {
		o.t.Fatal(err)
	}
}

// ticks reports whether the command runs.
func (o *outage) ticks() bool {
	size := func() int64 {
		info, err := os.Stat(o.path("ticks"))
		if err != nil {
			return 0
		}
		return info.Size()
	}
	before := size()
	time.Sleep(time.Second)
	return size() > before
}

func (o *outage) until(what string, ok func() bool) {
	o.t.Helper()
	for end := time.Now().Add(hang); !ok(); time.Sleep(50 * time.Millisecond) {
		if time.Now().After(end) {
			o.t.Fatalf("waited too long for %s", what)
		}
	}
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

// records returns all records of the log.
func (o *outage) records() []audit.Record {
	o.t.Helper()
	file, err := os.Open(o.path("log"))
	if err != nil {
		o.t.Fatal(err)
	}
	defer file.Close()
	records, skipped, err := audit.Read(file)
	if err != nil || skipped > 0 {
		o.t.Fatalf("%d lines skipped, %v", skipped, err)
	}
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
		if i > 0 && r.Timestamp.Before(records[i-1].Timestamp) {
			o.t.Errorf("%s is out of order", r.Event)
		}
		if r.Event != audit.HeartbeatFailed {
			kept, events = append(kept, r), append(events, r.Event)
		}
	}
	if got := strings.Join(events, " "); got != strings.Join(want, " ") {
		o.t.Fatalf("logged: %s", got)
	}
	return kept
}

func (o *outage) history() string {
	o.t.Helper()
	out, err := o.command("repo", "history", "log").CombinedOutput()
	if err != nil {
		o.t.Fatalf("%v: %s", err, out)
	}
	return string(out)
}

// TestAuditResumed: the log says that a lock was lost in an outage and resumed. A repolock
// that the command runs still recognizes the lock, although its id has changed.
func TestAuditResumed(t *testing.T) {
	o := newOutage(t)
	o.begin(`repolock -r repo prune --wait forever -- true; test $? = 75`)
	o.rename("away", "repo")
	o.until("the command to go on", o.ticks)
	if code := o.code(); code != 0 || !strings.Contains(o.output.String(), "the lock that this very command runs under") {
		t.Errorf("exit code %d", code)
	}
	r := o.log(audit.Acquired, audit.Lost, audit.Paused, audit.Resumed, audit.Released)
	acquired, lost, paused, resumed, released := r[0], r[1], r[2], r[3], r[4]
	for _, r := range []audit.Record{lost, paused} {
		if r.RequestID != acquired.RequestID || r.LockPath != acquired.LockPath || r.Operation != "prune" || r.Mode != "exclusive" || r.PID != o.cmd.Process.Pid {
			t.Errorf("%+v", r)
		}
	}
	if lost.Error == "" || lost.HeldDurationSeconds == nil || *lost.HeldDurationSeconds < 5 || paused.Reason != "lock_lost" {
		t.Errorf("lost %+v, paused %+v", lost, paused)
	}
	if resumed.ResumedFrom != acquired.RequestID || resumed.RequestID == acquired.RequestID || resumed.LockPath == acquired.LockPath {
		t.Errorf("resumed %+v", resumed)
	}
	if released.RequestID != resumed.RequestID || released.Result != audit.Success || *released.ExitCode != 0 ||
		*released.HeldDurationSeconds <= *lost.HeldDurationSeconds {
		t.Errorf("released %+v", released)
	}
	if h := o.history(); strings.Count(h, "\n") != 2 || !strings.Contains(h, "success; stopped for ") {
		t.Errorf("history:\n%s", h)
	}
}

// TestAuditPassed: a lock that another holder has had meanwhile is lost for good.
func TestAuditPassed(t *testing.T) {
	o := newOutage(t)
	o.begin("touch went-on")
	if out, err := o.command("away", "prune", "--ttl", "10s", "--wait", "forever", "--", "true").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	o.rename("away", "repo")
	if code := o.code(); code != exitLost {
		t.Errorf("exit code %d", code)
	}
	if _, err := os.Stat(o.path("went-on")); err == nil {
		t.Error("the command went on")
	}
	r := o.log(audit.Acquired, audit.Lost, audit.Paused, audit.Lost, audit.Released)
	if lost := r[3]; lost.RequestID != r[0].RequestID || !strings.Contains(lost.Error, "lock lost: ") {
		t.Errorf("%+v", lost)
	}
	if released := r[4]; released.Result != audit.Failure || *released.ExitCode != 128+9 {
		t.Errorf("%+v", released)
	}
	if h := o.history(); strings.Count(h, "\n") != 2 || !strings.Contains(h, "lost: ") {
		t.Errorf("history:\n%s", h)
	}
}

// TestAuditHangs: a log on a disk that hangs, or on an unread terminal, delays nothing.
func TestAuditHangs(t *testing.T) {
	o := newOutage(t)
	unread, terminal, err := pty.Open()
	if err != nil {
		t.Fatal(err)
	}
	defer unread.Close()
	defer terminal.Close()
	if err := os.Symlink(terminal.Name(), o.path("log")); err != nil {
		t.Fatal(err)
	}
	full, err := syscall.Open(o.path("log"), syscall.O_WRONLY|syscall.O_NONBLOCK|syscall.O_NOCTTY|syscall.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer syscall.Close(full)
	for _, size := range []int{4096, 1} {
		for err = nil; err == nil; {
			_, err = syscall.Write(full, make([]byte, size))
		}
		if err != syscall.EAGAIN {
			t.Fatal(err)
		}
	}
	o.begin("true")
	o.rename("away", "repo")
	o.until("the command to go on", o.ticks)
	if code := o.code(); code != 0 {
		t.Errorf("exit code %d", code)
	}
}

// TestNestedIsPaused: a repolock under another's lock is stopped with it, and so is its
// command, although that is in another group than the stopped one. Both continue with it.
func TestNestedIsPaused(t *testing.T) {
	t.Parallel()
	for _, onLost := range []string{"pause", "term", "kill", "warn"} {
		t.Run(onLost, func(t *testing.T) {
			o := newOutage(t)
			if err := os.Mkdir(o.path("inner"), 0o700); err != nil {
				t.Fatal(err)
			}
			o.start("restore", "--ttl", "10s", "--", "repolock", "-r", o.path("inner"), "prune", "--on-lost", onLost, "--",
				"sh", "-c", "while [ ! -e end ]; do echo >>ticks; sleep 0.1; done")
			o.until("the command to run", o.ticks)
			o.rename("repo", "away")
			time.Sleep(11 * time.Second) // from now on others can be let in
			if o.ticks() {
				t.Error("it runs on without the outer lock")
			}
			o.rename("away", "repo")
			o.until("the command to go on", o.ticks)
			if code := o.code(); code != 0 {
				t.Errorf("exit code %d", code)
			}
		})
	}
}
