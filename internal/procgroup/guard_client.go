//go:build unix

package procgroup

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/repolock/repolock/internal/procgroup/guard"
)

const (
	// answerTimeout is the time in which a guard must answer, or follow a new allowance. It is long because a
	// busy machine can take seconds to start a program.
	answerTimeout = 10 * time.Second
	// startTimeout is that time while the command doesn't run: before its start, or while it is stopped because it has no
	// guard. With nice -n 19 beside other programs, a guard can need half a minute to start.
	startTimeout = time.Minute
	// unguardedGrace is how long the group runs without a guard while we start another.
	unguardedGrace = time.Second
	// The pause before another guard is started doubles from firstPause to lastPause.
	firstPause = 50 * time.Millisecond
	lastPause  = 5 * time.Second
)

// errSilent is the reason for ErrUnguarded if each guard ends without an answer.
var errSilent = errors.New("it ends without an answer")

// guardClient is our side of a guard process. A byte on out asks the guard to look at the page, and it answers by a
// byte on in. Both read the details from the page, which guard.Page documents.
type guardClient struct {
	pid int
	pipes
}

// startGuard runs our own program as the guard. The guard keeps the backstop's pipe and the files of keep
// open until its end. After startGuard has returned, the guard reads the page even if we are killed.
func (g *Group) startGuard() (*guardClient, error) {
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	defer null.Close()
	ours, theirs, err := openPipes()
	if err != nil {
		return nil, err
	}
	defer theirs.close()

	env := []string{guard.Environment} // no secrets
	if len(g.kept) > 0 {
		env = append(env, guard.Keeps+"="+strconv.Itoa(len(g.kept)))
	}
	if aftermath := g.cmd.Aftermath; aftermath != nil {
		env = append(env, guard.Aftermath+"="+strings.Join(slices.Concat([]string{guardProgram(), os.Args[0]}, aftermath, []string{""}), "\n"))
	}
	pid, err := spawn(guardProgram(), []string{guard.Name, guard.Argument}, &syscall.ProcAttr{
		Dir:   "/", // so that the guard keeps no file system busy
		Env:   env,
		Files: append([]uintptr{theirs.in.Fd(), null.Fd(), null.Fd(), theirs.out.Fd(), g.backstop.kept.Fd(), g.pageFile.Fd()}, g.kept...),
		Sys:   guardAttr(),
	})
	if err != nil {
		ours.close()
		return nil, &os.PathError{Op: "start the guard", Path: guardProgram(), Err: err}
	}
	return &guardClient{pid, ours}, nil
}

// guardAttr gives the guard a group of its own, so that neither Ctrl-C nor the end of the terminal sends it a signal.
// It stays in our session: see guard.anchor. guardAttr is a variable for tests.
var guardAttr = func() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }

// end kills and reaps the guard. After end, the guard sends no signal. It must not be called twice.
func (p *guardClient) end() {
	_ = unix.Kill(p.pid, unix.SIGKILL)
	await(p.pid)
	p.close()
}

// allowLocked writes the allowance into the page. The guard reads it at its next look, and must follow it within
// answerTimeout or startTimeout. If the guard hasn't followed an earlier allowance yet, the timer for that one runs on.
// g.mu is held.
func (g *Group) allowLocked() {
	g.page.Allow(g.allowance)
	if g.page.Follows(g.awaited) {
		g.awaited = g.page.Version()
		timeout := answerTimeout
		if !g.begun || g.unguarded != nil {
			timeout = startTimeout
		}
		g.overdue.Reset(timeout)
	}
}

// ring asks the guard to look at the page, and to answer. g.mu is held.
func (g *Group) ring() {
	if g.guard != nil {
		_, _ = g.guard.out.Write([]byte{0}) // it fails if the guard has died: then keepGuard starts another
	}
}

// replaceSilent kills a guard that hasn't followed an allowance in time, because it might be stopped.
// Then keepGuard starts another.
func (g *Group) replaceSilent() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.guard != nil && !g.page.Follows(g.awaited) {
		_ = unix.Kill(g.guard.pid, unix.SIGKILL)
	}
}

// keepGuard reads the answers of a guard. When the guard dies, keepGuard starts another, and reads its answers. It
// returns when the group is over.
func (g *Group) keepGuard(p *guardClient) {
	for r := (replacement{}); p != nil; p = g.nextGuard(&r) {
		answer := make([]byte, 64)
		for n, _ := p.in.Read(answer); n > 0; n, _ = p.in.Read(answer) {
			r = replacement{}
			g.answered()
		}
		if !g.buryGuard(p) {
			return
		}
	}
}

// buryGuard reaps a guard that has closed its pipe. It reports false if the group is over: then finish has ended
// the guard.
func (g *Group) buryGuard(p *guardClient) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.over {
		return false
	}
	g.guard = nil
	p.end()
	g.page.GuardDied()
	return true
}

// replacement is the search for another guard, from the death of one until another answers.
type replacement struct {
	since time.Time     // when the search began
	next  time.Time     // when to start another guard
	pause time.Duration // between next and the start after it
	err   error         // why the last start failed
}

// nextGuard starts another guard. If the start fails, nextGuard tries again. It returns nil when the group is
// over.
func (g *Group) nextGuard(r *replacement) *guardClient {
	if r.since.IsZero() {
		now := time.Now()
		*r = replacement{now, now, firstPause, errSilent}
	}
	wait, anew := firstPause, time.Time{}
	for {
		now := time.Now()
		if now.Sub(r.since) >= unguardedGrace {
			wait = guard.HoldInterval
			g.stopUnguarded(r.err, !now.Before(anew))
			if !now.Before(anew) {
				anew = now.Add(guard.StopInterval)
			}
		}
		if !now.Before(r.next) {
			p, err := g.startNextGuard()
			r.err = cmp.Or(err, errSilent)
			r.next, r.pause = now.Add(r.pause), min(2*r.pause, lastPause)
			if p != nil {
				return p
			}
		}
		select {
		case <-time.After(wait):
		case <-g.done:
			return nil
		}
	}
}

// startNextGuard starts another guard, which must follow a new version of the allowance.
func (g *Group) startNextGuard() (*guardClient, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.over {
		return nil, os.ErrProcessDone
	}
	p, err := g.startGuard()
	if err == nil {
		g.attachLocked(p)
	}
	return p, err
}

// attachLocked makes a guard that has just been started watch the group. g.mu is held.
func (g *Group) attachLocked(p *guardClient) {
	g.guard, g.awaited = p, 0 // every guard follows 0, so that allowLocked awaits the new version
	g.allowLocked()
	g.ring()
}

// stopUnguarded stops a group that has had no guard for too long: if our process were stopped now, nothing
// would stop the group in time. nextGuard calls it repeatedly, because another process can continue the
// group.
func (g *Group) stopUnguarded(why error, anew bool) {
	g.mu.Lock()
	began := g.unguarded == nil && !g.over
	g.unguarded = fmt.Errorf("%w: %w", ErrUnguarded, why)
	if g.cmd.Expiry != Nothing {
		g.due = true
		g.stopContinued(!began && g.members.Continued(g.pgid, 0, anew))
		g.seekRunaways()
	}
	g.wakeLocked()
	why = g.unguarded
	continued := g.reportContinued()
	g.mu.Unlock()
	continued()
	if began {
		g.reportInterrupted(why, false)
	}
}

// isDue reports whether the group must be continued as soon as it may run: a guard has stopped it since our last
// SIGCONT, or we have.
func (g *Group) isDue() bool { return g.due || g.page.Stops() != g.stopsContinued }

// answered handles an answer of the guard. If the guard follows the current allowance, the group is guarded, and
// answered continues it if it is due and may run. It reports the beginning and the end of an interruption.
func (g *Group) answered() {
	g.mu.Lock()
	wasStepped, guardedAgain := g.clockStepped, false
	if g.page.FollowsCurrent() {
		guardedAgain, g.unguarded = g.unguarded != nil, nil
		if g.isDue() {
			_ = g.continueLocked()
		}
	}
	if g.clockStepped = check(g.allowance, g.cmd.Expiry, g.clocks()) == ErrClockStepped; g.clockStepped {
		g.seekRunaways()
	}
	began, over := !wasStepped && g.clockStepped, wasStepped && g.mayRun() == nil
	g.wakeLocked()
	continued := g.reportContinued()
	g.mu.Unlock()
	continued()
	if guardedAgain {
		g.reportInterrupted(ErrUnguarded, true)
	}
	if began || over {
		g.reportInterrupted(ErrClockStepped, over)
	}
}

// wakeLocked wakes all goroutines in awaitAnswer.
func (g *Group) wakeLocked() {
	close(g.changed)
	g.changed = make(chan struct{})
}

// awaitAnswer returns when the guard has answered that it follows the current allowance. After that, the guard
// can't stop the group because of an earlier one. awaitAnswer fails at the timeout, which can be nil, or after
// unguardedGrace without a guard.
func (g *Group) awaitAnswer(timeout <-chan time.Time) error {
	g.mu.Lock()
	g.allowLocked()
	g.ring()
	want := g.page.Version()
	for {
		follows, unguarded, changed := g.page.Follows(want), g.unguarded, g.changed
		g.mu.Unlock()
		switch {
		case follows:
			return nil
		case unguarded != nil:
			return unguarded
		}
		select {
		case <-changed:
		case <-timeout:
			return ErrUnguarded
		case <-g.done:
			return os.ErrProcessDone
		}
		g.mu.Lock()
	}
}
