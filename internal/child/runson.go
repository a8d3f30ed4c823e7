//go:build unix

package child

import (
	"slices"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// moment is how long a process that we may signal has to stop or to end: it might
	// wait for a disk.
	moment = 2 * time.Second
	// The first report of processes that run on is followed by others, after pauses
	// that double from firstReminder to lastReminder.
	firstReminder = 10 * time.Second
	lastReminder  = 10 * time.Minute
)

// follow begins to look for processes that run on although the group was just stopped or
// killed: kill(2) of a group fails only if it reaches no process at all. g.mu is held.
func (g *Group) follow() {
	if g.cmd.RunsOn == nil || g.following || g.over {
		return
	}
	g.following = true
	g.work.Go(g.findRunaways)
}

// findRunaways tells which processes run on, for as long as the group is to be stopped.
func (g *Group) findRunaways() {
	r := runaways{denied: denied}
	for pause := 50 * time.Millisecond; ; pause = min(2*pause, 5*time.Second) {
		select {
		case <-time.After(pause):
		case <-g.done:
			return
		}
		g.mu.Lock()
		if g.over || !g.toBeStill() {
			g.following = false
			g.mu.Unlock()
			return
		}
		killed, refused := g.killed, g.refused && !g.ended
		g.mu.Unlock()
		if pids, due := r.look(awake(g.pgid, killed, r.denied), killed, refused, time.Now()); due {
			g.cmd.RunsOn(pids, killed)
		}
	}
}

// denied reports whether we may not signal a process.
func denied(pid int) bool { return unix.Kill(pid, 0) == unix.EPERM }

// toBeStill reports whether no process of the group may run.
func (g *Group) toBeStill() bool {
	return g.killed || g.paused || g.cmd.Expiry != Nothing && g.judge() != nil
}

// runaways are the processes that run on.
type runaways struct {
	denied func(pid int) bool // we may not signal that process

	since  map[int]time.Time // they were first seen
	killed bool              // the group was, when they were last looked for
	next   time.Time         // when they are to be told again
	pause  time.Duration     // and after that
}

// look takes the processes of the group that run, and returns those that are to be told
// of, if they are to be told now. If the system refused the signal and shows us no process
// of the group, there are some all the same.
func (r *runaways) look(running []int, killed, refused bool, now time.Time) (pids []int, due bool) {
	if r.killed != killed {
		*r = runaways{denied: r.denied, killed: killed}
	}
	since := map[int]time.Time{}
	for _, pid := range running {
		if since[pid] = now; !r.since[pid].IsZero() {
			since[pid] = r.since[pid]
		}
		if now.Sub(since[pid]) >= moment || r.denied(pid) {
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
