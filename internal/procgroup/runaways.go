//go:build unix

package procgroup

import (
	"slices"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// stopTime is how long a process that we can signal may take to stop or to end, because it can wait
	// for a disk.
	stopTime = 2 * time.Second
	// The pause before the next report of processes that run on doubles from firstReminder
	// to lastReminder.
	firstReminder = 10 * time.Second
	lastReminder  = 10 * time.Minute
)

// seekRunaways starts a search for processes that still run after we have stopped or killed the group.
// kill(2) doesn't report them: for a group it fails only if it can't signal any process. g.mu is held.
func (g *Group) seekRunaways() {
	if g.cmd.RunsOn == nil || g.seeking || g.over {
		return
	}
	g.seeking = true
	g.work.Go(g.findRunaways)
}

// findRunaways reports the processes that still run, until the group may run or is empty.
func (g *Group) findRunaways() {
	r := runaways{denied: denied}
	for pause := 50 * time.Millisecond; ; pause = min(2*pause, 5*time.Second) {
		select {
		case <-time.After(pause):
		case <-g.done:
			return
		}
		g.mu.Lock()
		if g.over || !g.mustNotRun() {
			g.seeking = false
			g.mu.Unlock()
			return
		}
		pgid, killed, refused := g.pgid, g.killed, g.refused && !g.ended
		g.mu.Unlock()
		if pids, due := r.look(runningMembers(pgid, killed, r.denied), killed, refused, time.Now()); due {
			g.cmd.RunsOn(pids, killed)
		}
	}
}

// denied reports whether the system forbids us to signal a process.
func denied(pid int) bool { return unix.Kill(pid, 0) == unix.EPERM }

// mustNotRun reports whether every process of the group must be stopped or dead.
func (g *Group) mustNotRun() bool {
	return g.killed || g.paused || g.cmd.Expiry != Nothing && g.mayRun() != nil
}

// runaways are the processes that still run although the group was stopped or killed.
type runaways struct {
	denied func(pid int) bool // reports whether we may not signal a process

	since  map[int]time.Time // when look first saw each process
	killed bool              // at the last look, the group had been killed
	next   time.Time         // the time of the next report
	pause  time.Duration     // between reports
}

// look returns the processes to report, and whether a report is due. running are the processes of the group that
// run. refused is set if we may not signal any process of the group. Then a report is due even if the system lists
// no process.
func (r *runaways) look(running []int, killed, refused bool, now time.Time) (pids []int, due bool) {
	if r.killed != killed {
		*r = runaways{denied: r.denied, killed: killed}
	}
	since := map[int]time.Time{}
	for _, pid := range running {
		if since[pid] = now; !r.since[pid].IsZero() {
			since[pid] = r.since[pid]
		}
		if now.Sub(since[pid]) >= stopTime || r.denied(pid) {
			pids = append(pids, pid)
		}
	}
	r.since = since
	if len(pids) == 0 && !(refused && len(running) == 0) || now.Before(r.next) {
		return nil, false
	}
	r.pause = min(max(2*r.pause, firstReminder), lastReminder)
	r.next = now.Add(r.pause)
	slices.Sort(pids)
	return pids, true
}
