//go:build linux && programs

package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/repolock/repolock/internal/audit"
	"github.com/repolock/repolock/internal/test/assert"
)

func init() { standIns["as-root"] = asRoot }

// asRoot is a setuid program that becomes root entirely, as sudo does, so that no other user can signal it. It
// writes its pid again and again until there is a file "end".
func asRoot([]string) error {
	if err := syscall.Setreuid(0, 0); err != nil {
		return err
	}
	for {
		if _, err := os.Stat("end"); err == nil {
			return nil
		}
		f, err := os.OpenFile("root-ticks", os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600)
		if err != nil {
			return err
		}
		fmt.Fprintln(f, os.Getpid())
		f.Close()
		time.Sleep(50 * time.Millisecond)
	}
}

// rootsProcess is a site in which the repolock of an ordinary user runs a process of root.
type rootsProcess struct {
	*site
	*process
	as *syscall.Credential
}

func newRootsProcess(t *testing.T) *rootsProcess {
	t.Helper()
	assert.Need(t, os.Getuid() == 0, "this test must be run as root: it makes a setuid program")
	s := newSite(t)
	nobody, err := user.Lookup("nobody")
	assert.OK(t, err)
	uid, _ := strconv.Atoi(nobody.Uid)
	gid, _ := strconv.Atoi(nobody.Gid)
	// Other users can't open the directory of the tests.
	s.dir, err = os.MkdirTemp("/tmp", "repolock")
	assert.OK(t, err)
	t.Cleanup(func() { os.RemoveAll(s.dir) })
	s.repo = s.path("repo")
	self, err := os.Executable()
	assert.OK(t, err)
	in(t, s.dir, fmt.Sprintf(`
install -m 755 %s repolock
install -m 4755 %s as-root
mkdir -m 700 repo
chown %d:%d . repo
chmod 755 .`, filepath.Join(bin, "repolock"), self, uid, gid))
	return &rootsProcess{site: s, as: &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}}
}

// start runs repolock as the ordinary user.
func (o *rootsProcess) start(args ...string) {
	o.t.Helper()
	cmd := exec.Command(o.path("repolock"), args...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: o.as}
	o.process = o.site.run(cmd)
}

// runs reports whether a process of the command writes into a file within a second: ticks, or root-ticks,
// which has root's pid.
func (o *rootsProcess) runs(file string) bool {
	before := len(o.lines(file))
	time.Sleep(time.Second)
	return len(o.lines(file)) > before
}

// exits lets the command end, and checks repolock's exit code.
func (o *rootsProcess) exits(want int) {
	o.t.Helper()
	o.touch("end")
	o.process.exits(want)
}

// logged returns why processes that can't be signalled run on, by the log.
func (o *rootsProcess) logged(pid int) (reasons []string) {
	o.t.Helper()
	for _, r := range o.records("log") {
		if r.Event == audit.RunsOn && slices.Equal(r.PIDs, []int{pid}) && r.RequestID != "" {
			reasons = append(reasons, r.Reason)
		}
	}
	return reasons
}

// TestCannotBeSignalled: one process of the command can't be signalled, and the others can. repolock warns
// repeatedly that the process runs on, while it stops the others and while it kills them.
func TestCannotBeSignalled(t *testing.T) {
	o := newRootsProcess(t)
	o.start("prune", "--ttl", "10s", "--resume-for", "25s", "--audit", o.path("log"), "--",
		"sh", "-c", "./as-root & while :; do echo >>ticks; sleep 0.1; done")
	o.reaches("the command to run", func() bool { return o.runs("ticks") && o.runs("root-ticks") })
	pid := o.pidOfRoot()
	o.away()
	o.reaches("the command to be stopped", func() bool { return !o.runs("ticks") })
	stopped := fmt.Sprintf("repolock: warning: 1 process of the command can't be stopped: pid %d; it runs on without the lock\n", pid)
	for _, c := range []struct {
		warning string
		times   int
	}{{stopped, 1}, {stopped, 2}, {strings.Replace(stopped, "stopped", "killed", 1), 1}} {
		o.reaches("a warning", func() bool { return strings.Count(o.stderr.String(), c.warning) >= c.times })
		assert.That(t, o.runs("root-ticks"), "root's process doesn't run after %s", c.warning)
	}
	o.exits(79)
	reasons := o.logged(pid)
	got := strings.Join(slices.Compact(slices.Clone(reasons)), " ")
	assert.That(t, got == audit.NotStopped+" "+audit.NotKilled && len(reasons) >= 3, "logged: %q", reasons)
}

// TestNoneCanBeSignalled: repolock warns if it can signal no process of the command.
func TestNoneCanBeSignalled(t *testing.T) {
	for onLost, what := range map[string]string{"kill": "killed", "term": "killed", "pause": "stopped"} {
		t.Run(onLost, func(t *testing.T) {
			o := newRootsProcess(t)
			o.start("prune", "--ttl", "10s", "--on-lost", onLost, "--", "./as-root")
			o.reaches("the command to run", func() bool { return o.runs("root-ticks") })
			o.away()
			o.says(fmt.Sprintf("1 process of the command can't be %s: pid %d; it runs on without the lock", what, o.pidOfRoot()))
			assert.That(t, o.runs("root-ticks"), "it was stopped")
			want := 79
			if onLost == "pause" { // the lock can be resumed, and is held when the command ends
				o.back()
				o.says("the lock was resumed")
				want = 0
			}
			o.exits(want)
		})
	}
}

// pidOfRoot is the pid of root's process.
func (o *rootsProcess) pidOfRoot() int {
	pid, _ := strconv.Atoi(o.lines("root-ticks")[0])
	return pid
}
