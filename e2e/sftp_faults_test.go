//go:build linux && programs

package e2e

import (
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/repolock/repolock/internal/test/assert"
	"github.com/repolock/repolock/internal/test/sshd"
)

// TestSFTPKilled: the ssh of a holder that is killed ends with it, and the server's process then, too.
func TestSFTPKilled(t *testing.T) {
	r := newRemote(t)
	p := r.hold("prune", "a", brief...)
	ssh := p.ssh()
	assert.Equal(t, len(r.sshd.Sessions(t)), 1, "sessions")
	p.signal(syscall.SIGKILL)
	killed := time.Now()
	r.until("the command and ssh to end", func() bool { return r.gone("pid-a") && ended(ssh) })
	r.until("the session to end", func() bool { return len(r.sshd.Sessions(t)) == 0 })
	r.freed(killed.Add(ttl + 5*time.Second))
	r.nothingLeft()
}

// unnoticed are outages that are shorter than the lease.
var unnoticed = map[string]func(*remote){
	"the sessions are killed": func(r *remote) { r.sessions(syscall.SIGKILL) },
	"the server and its sessions are killed, and it is started again": func(r *remote) { r.away(); r.back() },
	"the server's process is stopped for a while": func(r *remote) {
		r.sessions(syscall.SIGSTOP)
		time.Sleep(4 * time.Second)
		r.sessions(syscall.SIGCONT)
	},
}

// TestSFTPShortOutage: the command doesn't notice an outage that is shorter than the lease, or the end of its ssh.
func TestSFTPShortOutage(t *testing.T) {
	t.Parallel()
	for name, outage := range unnoticed {
		t.Run(name, func(t *testing.T) {
			r := newRemote(t)
			r.outlives(func(*process) { outage(r) })
		})
	}
	t.Run("the network is cut", func(t *testing.T) {
		r := newRemote(t)
		proxy := r.proxied()
		r.outlives(func(*process) { proxy.Reset() })
	})
	t.Run("the network is away for a while", func(t *testing.T) {
		r := newRemote(t)
		proxy := r.proxied()
		r.outlives(func(*process) {
			proxy.Stall()
			time.Sleep(4 * time.Second)
			proxy.Resume()
		})
	})
	t.Run("ssh is killed", func(t *testing.T) {
		r := newRemote(t)
		r.outlives(func(p *process) {
			first := p.ssh()
			assert.OK(t, syscall.Kill(first, syscall.SIGKILL))
			p.reaches("another ssh", func() bool { return ended(first) && p.ssh() != first })
			assert.Equal(t, zombies(p.Process.Pid), nil, "zombies")
		})
	})
}

// outlives holds a lock during an outage. The lease is long enough for a busy machine.
func (r *remote) outlives(outage func(*process)) {
	r.t.Helper()
	p := r.hold("prune", "a", "--ttl", "60s", "--look", "2s", "--verbose")
	outage(p)
	before := strings.Count(p.stderr.String(), "refreshed: ")
	p.reaches("a refresh", func() bool { return strings.Count(p.stderr.String(), "refreshed: ") > before })
	p.ticksOn("a")
	p.end("a")
	out := p.stderr.String()
	assert.That(r.t, strings.Contains(out, "released: ") && !strings.Contains(out, "lost") && !strings.Contains(out, "stopped"), "it was noticed: %s", out)
	r.nothingLeft()
}

// TestSFTPLongOutage: before the end of the lease the command is stopped, or ended as --on-lost says, also if
// the network only is silent.
func TestSFTPLongOutage(t *testing.T) {
	t.Parallel()
	for _, onLost := range []string{"pause", "term", "kill"} {
		t.Run(onLost, func(t *testing.T) {
			r := newRemote(t)
			proxy := r.proxied()
			p := r.hold("prune", "a", append(brief, "--on-lost", onLost)...)
			proxy.Mute()
			away := time.Now()
			if onLost == "pause" {
				r.stops("a")
				r.ranWithin("a", away)
				p.signal(syscall.SIGTERM) // and not for as long as --resume-for
				p.code()
				return
			}
			p.exits(79)
			assert.That(t, r.gone("pid-a"), "the command lives on")
			r.ranWithin("a", away)
		})
	}
}

// orphanages are commands that leave processes behind.
var orphanages = map[string]string{
	"none":                    "exit 3",
	"in the group":            "sleep 2 & exit 3",
	"of a child":              "(sleep 2 & sleep 0.1 & exit 4); exit 3",
	"in a session of its own": "setsid sleep 1 & sleep 0.2; exit 3",
	"that ended":              "(setsid sh -c 'sleep 0.1 & sleep 0.2 &' &); sleep 1; exit 3",
}

// TestSFTPOrphans: a command's end doesn't depend on our ssh: it is the same as on a directory, and /proc isn't read as
// a whole for an ssh that could be the command's child.
func TestSFTPOrphans(t *testing.T) {
	t.Parallel()
	for name, command := range orphanages {
		t.Run(name, func(t *testing.T) {
			r := newRemote(t)
			scans := map[string]int{}
			for _, repo := range []string{r.path("repo"), r.repo} {
				s := r.at(repo)
				trace := s.path("trace")
				args := []string{"-f", "-qq", "-o", trace, "-e", "trace=openat", bin + "/repolock", "run", "--exclusive", "--verbose", "--", "sh", "-c", command}
				p := s.run(exec.Command("strace", args...))
				p.exits(3)
				p.contains("released: ")
				// One scan counts the processes that a message names. It is printed only after some time.
				scans[repo] = strings.Count(read(t, trace), `openat(AT_FDCWD, "/proc", `) - strings.Count(p.stderr.String(), "processes still run")
			}
			r.nothingLeft()
			assert.That(t, scans[r.repo] <= scans[r.path("repo")], "scans of /proc: %v", scans)
			if name == "none" {
				assert.Equal(t, scans[r.repo], 0, "scans of /proc")
			}
			r.until("no session to be left", func() bool { return len(r.sshd.Sessions(t)) == 0 })
		})
	}
}

// TestSFTPTerminal: Ctrl-C releases the lock, for which ssh must live on, and Ctrl-Z and fg are as without ssh.
func TestSFTPTerminal(t *testing.T) {
	r := newRemote(t)
	w := r.window("shell", "bash")
	w.run("repolock run --exclusive --verbose -- " + up)
	w.shows("up$")
	w.key("C-c")
	w.shows("(?s)released: .*" + ready + "$")
	assert.That(t, !strings.Contains(w.after(), "failed"), "a request failed:\n%s", w.after())
	w.run("echo code $?")
	w.shows("^code 130\n" + ready)
	r.nothingLeft()

	w.run("repolock run --exclusive --verbose -- cat")
	w.shows("acquired: ")
	w.text("hello")
	w.shows("hello\nhello$")
	sessions := r.sshd.Sessions(t)
	w.key("C-z")
	w.shows(`(?s)Stopped.*` + ready + `$`)
	w.run("fg")
	w.shows("cat$")
	w.text("again")
	w.shows("again\nagain$")
	assert.Equal(t, r.sshd.Sessions(t), sessions, "the session before Ctrl-Z and now")
	w.key("C-d")
	w.shows("(?s)released: .*" + ready + "$")
	r.nothingLeft()
	w.run("repolock prune --wait forever -- true")
	w.shows(ready + "$")
}

// TestSFTPLag: over a long way a lock is acquired, held and released.
func TestSFTPLag(t *testing.T) {
	r := newRemote(t)
	proxy := r.proxied()
	proxy.Lag(100 * time.Millisecond)
	p := r.hold("prune", "a")
	refused(r.site, "backup")
	p.end("a")
	r.nothingLeft()
	assert.That(t, strings.HasPrefix(r.repo, "sftp://"+sshd.Me()), "%s", r.repo)
}
