//go:build linux

package procgroup

import (
	"testing"

	"golang.org/x/sys/unix"

	"github.com/repolock/repolock/internal/test/assert"
	"github.com/repolock/repolock/internal/test/rounds"
)

// TestKilledWhilePaused: we are killed while the group is stopped. The kernel continues a stopped group that is orphaned
// then: setpgid(2). No process of the group runs before it is killed, even if it ignores SIGHUP.
func TestKilledWhilePaused(t *testing.T) {
	for range rounds.Fewer(50, 10) {
		k := newTicker(t)
		p := start(t, self("parent", "-usr", "--"), []string{"sh", "-c", `"$@" & wait`, "sh"}, k.args())
		k.runs()
		_ = p.cmd.Process.Signal(unix.SIGUSR1)
		p.want("pause: <nil>")
		k.quiet()
		group := p.pgid()
		eventually(t, "the anchor", func() bool { // until it is there, the group is orphaned with us
			n, ok := sweepOnce(group, 0)
			return ok && n == 3 // with the shell and its child
		})
		before := len(k.all())
		p.end(unix.SIGKILL)
		pid := k.pid()
		eventually(t, "its end", func() bool { return !exists(pid) })
		assert.Equal(t, len(k.all())-before, 0, "ticks after the pause")
	}
}

// TestAnchorKeepsNothingAlive: a paused group whose processes have all ended is empty, although the guard's anchor is in
// it. The anchor ends with the guard.
func TestAnchorKeepsNothingAlive(t *testing.T) {
	l := run(t, Stop)
	assert.OK(t, l.Pause())
	anchor := 0
	eventually(t, "the anchor", func() bool { anchor = l.page.Anchor(); return anchor != 0 })
	n, ok := sweepOnce(l.pgid, anchor)
	assert.That(t, ok && n == 1, "%d members", n)
	assert.OK(t, unix.Kill(l.pgid, unix.SIGKILL))
	ends(t, l.Group)
	eventually(t, "the anchor's end", func() bool { return !exists(anchor) })
}
