//go:build unix

package procgroup

import (
	"golang.org/x/sys/unix"

	"github.com/repolock/repolock/internal/procgroup/guard"
)

// continuations counts how often another process has continued a group that may not run: cpulimit, a debugger, or
// kill -CONT. The guard has a count of its own. Each of the two stops the group again at once, and kills it if its
// count exceeds guard.MostContinued. Neither counts a continuation that the other has already ended.
type continuations struct {
	own      bool // our own SIGCONT isn't reported yet: the kernel doesn't tell whose it was
	seen     int  // by us: SIGCONTs to the leader
	reported int  // 1: Continued was called; 2: it was called because of the kill
}

// continuedByOthers handles a SIGCONT to the leader, perhaps our own. It ends a stop by the terminal.
func (g *Group) continuedByOthers() {
	g.mu.Lock()
	own := g.others.own
	g.others.own = false
	g.unsuspendLocked()
	if !g.killed && g.mustNotRun() {
		g.stopContinued(!own)
		g.ring()
	}
	report := g.reportContinued()
	g.mu.Unlock()
	report()
}

// stopContinued stops a group that was continued although it may not run, or kills it. g.mu is held.
func (g *Group) stopContinued(count bool) {
	if count {
		g.others.seen++
	}
	sig := unix.SIGSTOP
	if g.others.seen > guard.MostContinued {
		sig = unix.SIGKILL
	}
	_ = g.signalLocked(sig)
}

// reportContinued returns a function that calls Command.Continued if there is something to report. g.mu is held.
func (g *Group) reportContinued() func() {
	if g.page == nil {
		return func() {} // fork has failed
	}
	n, was := max(g.others.seen, g.page.Continued()), g.others.reported
	switch {
	case n > guard.MostContinued && was < 2:
		g.others.reported = 2
		g.killed = true
		g.seekRunaways()
	case n > 0 && was < 1 && g.mustNotRun():
		g.others.reported = 1
	default:
		return func() {}
	}
	now := g.others.reported
	return func() {
		for ; was < now && g.cmd.Continued != nil; was++ { // both, even if all of it came at once
			g.cmd.Continued(was == 1)
		}
	}
}
