//go:build linux && programs

package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/repolock/repolock/internal/test/assert"
)

// These tests use real versions of bd. The table of docs/evidence/other-locks.md has what its daemon does.

// beadsSite is a site with a bd in PATH, and a directory for its database.
type beadsSite struct {
	*systems
	bd string // the path of the program
}

// newBeads builds the bd that a directory of e2e/peers pins.
func newBeads(t *testing.T, peer string) *beadsSite {
	t.Helper()
	s := newSystems(t, kindBeads)
	in(t, "peers/"+peer, "go build -o "+s.path("programs")+"/ github.com/steveyegge/beads/cmd/bd", "CGO_ENABLED=0")
	s.env = []string{
		"PATH=" + s.path("programs") + ":" + bin + ":" + os.Getenv("PATH"), "HOME=" + s.dir,
		"BEADS_DIR=", "BEADS_DAEMON_MODE=poll", // by itself the daemon waits for events
	}
	return &beadsSite{s, s.path("programs/bd")}
}

// do starts a bd in a directory.
func (s *beadsSite) do(dir string, args ...string) *process {
	s.t.Helper()
	return s.run(exec.Command("sh", append([]string{"-c", `cd "$0" && exec bd "$@"`, s.path(dir)}, args...)...))
}

// cycle matches how the daemon ended a cycle.
var cycle = regexp.MustCompile(`(?m)msg="((?:Skipping database|Local sync complete).*)`)

// cycles returns how the daemon's cycles ended.
func (s *beadsSite) cycles() (ends []string) {
	s.t.Helper()
	raw, _ := os.ReadFile(s.path("daemon.log")) // the daemon creates it
	for _, found := range cycle.FindAllStringSubmatch(string(raw), -1) {
		ends = append(ends, found[1])
	}
	return ends
}

// next checks how the daemon's next cycles end. A cycle that runs already might not have seen the file.
func (s *beadsSite) next(what, want string) {
	s.t.Helper()
	const looks = 4
	from := len(s.cycles()) + 1
	s.until("cycles: "+what, func() bool { return len(s.cycles()) >= from+looks })
	for _, end := range s.cycles()[from:] {
		assert.That(s.t, strings.HasPrefix(end, want), "%s: a cycle ended with %s, want %s", what, end, want)
	}
}

// lockFile writes a lock file, as another tool does.
func (s *beadsSite) lockFile(pid int, host string) {
	s.t.Helper()
	s.write("beads/.beads/.exclusive-lock", fmt.Sprintf(`{"holder": "my-tool", "pid": %d, "hostname": %q, "started_at": "2025-10-25T12:00:00Z", "version": "1"}`, pid, host))
}

// doctor returns what doctor prints about a directory, whatever its exit code is.
func (s *beadsSite) doctor(dir string) string {
	s.t.Helper()
	p := s.start("doctor", "--also", "beads:"+s.path(dir))
	p.code()
	return p.stderr.String()
}

// TestBeads: the daemon of the bd that e2e/peers/beads/go.mod pins skips the database while repolock has the lock,
// also by a redirect, and it does with each lock file what the table says.
func TestBeads(t *testing.T) {
	const synced, lockedBy, unreadable = "Local sync complete", `Skipping database (locked)" holder=`, "Skipping database (lock check failed)"
	s := newBeads(t, "beads")
	s.do("beads", "--no-daemon", "init", "--prefix", "t").exits(0)
	s.do("beads", "--no-daemon", "create", "an issue").exits(0)
	s.mkdir("worktree/.beads")
	s.write("worktree/.beads/redirect", "# as bd worktree writes it\n../beads/.beads\n")
	list := s.do("worktree", "--no-daemon", "list")
	list.exits(0)
	assert.That(t, strings.Contains(list.stderr.String(), "an issue"), "bd doesn't follow the redirect: %s", list.stderr.String())
	for dir, want := range map[string]string{"beads": "SQLite, beads.db", "worktree": "redirect names " + s.path("beads/.beads")} {
		out := s.doctor(dir)
		assert.That(t, strings.Contains(out, "v0.49.6 ("+s.bd+"), whose daemon skips a locked database"), "%s", out)
		assert.That(t, strings.Contains(out, want) && strings.Contains(out, "fit for locks, as far"), "%q: %s", want, out)
	}

	daemon := s.do("beads", "daemon", "start", "--foreground", "--local", "--interval", "200ms", "--log", s.path("daemon.log"))
	s.next("no lock", synced)
	for _, dir := range []string{"beads", "beads/.beads", "worktree"} {
		name := "held-" + filepath.Base(dir)
		holder := s.hold("run", name, "--also", "beads:"+s.path(dir))
		s.next("a lock by "+dir, lockedBy+"repolock")
		holder.end(name)
		s.next("after a lock by "+dir, synced)
	}

	host, err := os.Hostname()
	assert.OK(t, err)
	s.lockFile(os.Getpid(), host)
	s.next("a process of this host", lockedBy+"my-tool")
	s.lockFile(os.Getpid(), "elsewhere")
	s.next("another host", lockedBy+"my-tool")
	s.write("beads/.beads/.exclusive-lock", `{"holder": "vc-`)
	s.next("malformed", unreadable)
	ended := exec.Command("true")
	assert.OK(t, ended.Run())
	s.lockFile(ended.ProcessState.Pid(), host)
	s.next("a process that has ended", lockedBy+"my-tool") // which the document of beads promises otherwise
	next := s.hold("run", "next", "--also", s.urls[kindBeads])
	s.next("the stale lock is replaced", lockedBy+"repolock")
	next.end("next")
	s.next("after the stale lock", synced)
	assert.That(t, !daemon.ended(), "the daemon has ended")
}

// TestLaterBeads: the bd that e2e/peers/beads-1/go.mod pins has no daemon and doesn't know the file, and doctor
// reports that it doesn't look at the lock.
func TestLaterBeads(t *testing.T) {
	s := newBeads(t, "beads-1")
	out := s.doctor("beads")
	for _, want := range []string{"v1.0.2 (" + s.bd + ") doesn't look at the lock", "only bd v0.17.7 to v0.49.6 does", "fit for locks, except for"} {
		assert.That(t, strings.Contains(out, want), "%q isn't in: %s", want, out)
	}
	daemon := s.do("beads", "daemon", "start")
	assert.That(t, daemon.code() != 0 && strings.Contains(daemon.stderr.String(), `unknown command "daemon"`), "%s", daemon.stderr.String())
}
