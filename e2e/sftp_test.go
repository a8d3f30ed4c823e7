//go:build linux && programs

package e2e

import (
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/repolock/repolock/internal/procstat"
	"github.com/repolock/repolock/internal/test/assert"
	"github.com/repolock/repolock/internal/test/freeport"
	"github.com/repolock/repolock/internal/test/rounds"
	"github.com/repolock/repolock/internal/test/sshd"
	"github.com/repolock/repolock/internal/test/tcpproxy"
)

// remote is a site whose repository is a directory behind a server of SSH.
type remote struct {
	*site
	sshd *sshd.Server
}

// newRemote starts a server for a test.
func newRemote(t *testing.T, lines ...string) *remote {
	t.Helper()
	r := &remote{newSite(t), sshd.Apart(t, lines...)}
	r.repo = r.sshd.URL(r.path("repo"))
	r.uses(r.sshd.Bin())
	r.backend = r
	return r
}

// uses sets the directory of the ssh.
func (r *remote) uses(ssh string) {
	r.env = []string{"PATH=" + bin + ":" + ssh + ":" + os.Getenv("PATH")}
}

// direct returns the site on the same directory without a server, and second on another server.
func (r *remote) direct() *site { return r.at(r.path("repo")) }

func (r *remote) second() *site {
	r.t.Helper()
	return r.at(r.sshd.Another(r.t, "Subsystem sftp internal-sftp").URL(r.path("repo")))
}

// proxied puts a proxy before the server.
func (r *remote) proxied() *tcpproxy.Proxy {
	r.t.Helper()
	p := tcpproxy.New(r.t, r.sshd.Address())
	port, err := strconv.Atoi(p.Address()[strings.LastIndex(p.Address(), ":")+1:])
	assert.OK(r.t, err)
	r.repo = sshd.At(sshd.Me(), port, r.path("repo"))
	return p
}

// away kills the server and its sessions.
func (r *remote) away() {
	r.sshd.End(os.Kill)
	r.sessions(syscall.SIGKILL)
}

func (r *remote) back() { r.sshd.Restart(r.t) }

// sessions sends a signal to each process that serves a client, and returns how many there are.
func (r *remote) sessions(sig syscall.Signal) int {
	r.t.Helper()
	pids := r.sshd.Sessions(r.t)
	for _, pid := range pids {
		_ = syscall.Kill(pid, sig)
	}
	return len(pids)
}

// left leaves out the temporary files that a broken connection leaves.
func (r *remote) left() []string {
	return slices.DeleteFunc(r.files("repo/index"), func(name string) bool { return strings.Contains(name, "/.repolock-") })
}

// ssh returns the ssh that a repolock has started.
func (p *process) ssh() (pid int) {
	p.s.t.Helper()
	p.reaches("an ssh", func() bool {
		out, _ := exec.Command("pgrep", "-x", "ssh", "-P", strconv.Itoa(p.Process.Pid)).Output()
		pid, _ = strconv.Atoi(strings.TrimSpace(string(out)))
		return pid > 0
	})
	return pid
}

// TestSFTPScenarios runs the scenarios through a server.
func TestSFTPScenarios(t *testing.T) {
	t.Parallel()
	for _, c := range scenarios {
		t.Run(c.name, func(t *testing.T) {
			if strings.HasPrefix(c.name, "short outage") {
				rounds.Long(t, "it waits for a refresh of a long lease")
			}
			c.run(newRemote(t).site)
		})
	}
}

// TestSFTPTogether: two servers and the machine itself have one lock, in one directory.
func TestSFTPTogether(t *testing.T) {
	r := newRemote(t)
	ways := []*site{r.site, r.second(), r.direct()}
	for i, way := range ways {
		b, c := ways[(i+1)%3], ways[(i+2)%3]
		name := strconv.Itoa(i)
		holder := way.hold("prune", "exclusive-"+name)
		refused(b, "backup", holder)
		refused(c, "prune", holder)
		status := b.start("status")
		status.exits(0)
		status.contains("(pid "+strconv.Itoa(holder.Process.Pid)+", ", "exclusive")
		holder.end("exclusive-" + name)
		holder = way.hold("backup", "shared-"+name)
		b.start("restore", "--", "true").exits(0)
		refused(c, "prune", holder)
		holder.end("shared-" + name)
		r.nothingLeft()
	}
}

// TestSFTPWait: a waiter through the other server acquires the lock when the holder releases it.
func TestSFTPWait(t *testing.T) {
	r := newRemote(t)
	holder := r.hold("prune", "a")
	waiter := r.second().start("prune", "--wait", "forever", "--", "true")
	r.until("a place in the queue", func() bool { return len(r.left()) > 1 })
	refused(r.direct(), "backup")
	holder.end("a")
	waiter.exits(0)
	r.nothingLeft()
}

// TestSFTPOnce: a run compares the job's last success with its own lock, since the server reports no time. A dry run has
// no lock, and says so.
func TestSFTPOnce(t *testing.T) {
	r := newRemote(t)
	r.start("prune", "--once-per", "1h", "--", "true").exits(0)
	r.start("prune", "--once-per", "1h", "--", "touch", "again").exits(0)
	dry := r.start("prune", "--once-per", "1h", "--dry-run", "--", "touch", "again")
	dry.exits(0)
	dry.contains("the lock is available", "warning: the job's last success isn't known: the store doesn't report how old it is, and there is no lock to compare it with")
	assert.That(t, !r.exists("again"), "the job ran twice")
}

// TestSFTPScript: a script holds the lock by its keeper, which has an ssh of its own until the release.
func TestSFTPScript(t *testing.T) {
	r := newRemote(t)
	r.write("script", `set -e
REPOLOCK_TOKEN=$(repolock acquire --exclusive --for-pid $$)
export REPOLOCK_TOKEN
repolock check
repolock renew
touch acquired
until [ -e go ]; do sleep 0.1; done
repolock check
repolock release
if repolock check; then exit 1; fi
`)
	p := r.run(exec.Command("sh", r.path("script")))
	p.reaches("the lock", func() bool { return r.exists("acquired") })
	refused(r.direct(), "backup")
	r.touch("go")
	p.exits(0)
	r.nothingLeft()
	r.until("no session to be left", func() bool { return len(r.sshd.Sessions(t)) == 0 })
}

// TestSFTPDoctor: doctor finds the server fit, also beside a second one.
func TestSFTPDoctor(t *testing.T) {
	r := newRemote(t)
	d := r.start("doctor", "--also", r.second().repo)
	d.exits(0)
	d.contains("this store is fit to hold locks")
	r.nothingLeft()
}

// TestSFTPMaster: a ControlMaster's connection is used, and outlives the lock. If it has no more sessions, ssh
// makes a connection of its own.
func TestSFTPMaster(t *testing.T) {
	for name, limit := range map[string]string{"room": "MaxSessions 2", "no room": "MaxSessions 1"} {
		t.Run(name, func(t *testing.T) {
			r := newRemote(t, limit)
			dir, err := os.MkdirTemp("/tmp", "ssh-") // TMPDIR can be too long for sockets
			assert.OK(t, err)
			t.Cleanup(func() { os.RemoveAll(dir) })
			ssh := r.sshd.Client(t, "ControlPath "+dir+"/master")
			r.uses(ssh)
			master := r.run(exec.Command(ssh+"/ssh", "-M", "-p", strconv.Itoa(r.sshd.Port), "127.0.0.1", "echo up; exec sleep 1000"))
			master.says("up")
			for range 2 {
				r.start("prune", "--", "true").exits(0)
			}
			assert.That(t, !master.ended(), "the master has ended")
			r.nothingLeft()
		})
	}
}

// TestSFTPChroot: a path is one in the chroot.
func TestSFTPChroot(t *testing.T) {
	assert.Need(t, os.Getuid() == 0, "this test must be run as root: it makes a directory of root's")
	top, err := os.MkdirTemp("/run", "repolock-e2e-") // a chroot and all above it are root's alone
	assert.OK(t, err)
	t.Cleanup(func() { os.RemoveAll(top) })
	assert.OK(t, os.Chmod(top, 0o755))
	r := newRemote(t, "Subsystem sftp internal-sftp", "ChrootDirectory "+top)
	assert.OK(t, os.Mkdir(top+"/repo", 0o755))
	for _, path := range []string{"/repo", "repo"} {
		r.repo = r.sshd.URL(path)
		r.start("prune", "--", "ls", top+"/repo/index/lock.exclusive").exits(0)
	}
}

// zombies returns the children of a process that nothing has reaped.
func zombies(of int) (pids []string) {
	out, _ := exec.Command("pgrep", "-P", strconv.Itoa(of)).Output()
	for pid := range strings.FieldsSeq(string(out)) {
		if s, _ := procstat.Read(pid); s.State == "Z" {
			pids = append(pids, pid)
		}
	}
	return pids
}

// freePort returns a port at which nothing listens.
func freePort(t *testing.T) int {
	t.Helper()
	port, err := freeport.Free()
	assert.OK(t, err)
	return port
}
