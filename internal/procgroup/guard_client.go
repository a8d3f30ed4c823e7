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
	// answerTimeout is the time in which a guard must answer. On a busy machine a program starts in seconds,
	// and without a guard that answers no command does.
	answerTimeout = 10 * time.Second
	// unguardedGrace is how long the group runs on without a guard while we start another.
	unguardedGrace = time.Second
	// The pause before another guard is started doubles from firstPause to lastPause.
	firstPause = 50 * time.Millisecond
	lastPause  = 5 * time.Second
)

// errSilent is the reason when a guard started and ended again.
var errSilent = errors.New("it ends without an answer")

// guardClient is our side of a guard process: orders go out, and answers come in.
type guardClient struct {
	pid int
	pipes
}

// startGuard runs our own program as the guard, which keeps the backstop's pipe and other files open
// as long as it lives. Once startGuard has returned, the guard reads what is sent even if we are killed.
func (g *Group) startGuard() (*guardClient, error) {
	return startGuard(g.backstop.kept, g.cmd.Aftermath, g.kept...)
}

func startGuard(backstop *os.File, aftermath []string, keep ...uintptr) (*guardClient, error) {
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

	env := []string{} // no secrets
	if len(keep) > 0 {
		env = append(env, guard.Keeps+"="+strconv.Itoa(len(keep)))
	}
	if aftermath != nil {
		env = append(env, guard.Aftermath+"="+strings.Join(slices.Concat([]string{guardProgram(), os.Args[0]}, aftermath, []string{""}), "\n"))
	}
	pid, err := spawn(guardProgram(), []string{guard.Name, guard.Argument}, &syscall.ProcAttr{
		Dir:   "/", // so that no file system stays busy
		Env:   env,
		Files: append([]uintptr{theirs.in.Fd(), null.Fd(), null.Fd(), theirs.out.Fd(), backstop.Fd()}, keep...),
		Sys:   &syscall.SysProcAttr{Setsid: true},
	})
	if err != nil {
		ours.close()
		return nil, &os.PathError{Op: "start the guard", Path: guardProgram(), Err: err}
	}
	return &guardClient{pid, ours}, nil
}

// end kills the guard and reaps it, so that it signals no process any more. The caller must
// know that the guard was not reaped before.
func (p *guardClient) end() {
	_ = unix.Kill(p.pid, unix.SIGKILL)
	await(p.pid)
	p.close()
}

// sendOrder sends the guard the current order under a new number. After an error,
// keepGuard starts another guard, which gets the same order. g.mu is held.
func (g *Group) sendOrder() error {
	if g.answered == g.seq {
		g.overdue.Reset(answerTimeout)
	}
	g.seq++
	return g.resendOrder()
}

func (g *Group) resendOrder() error {
	if g.guard == nil {
		return ErrUnguarded // keepGuard sends it to the next guard
	}
	// This waits only if the pipe is full because the guard has not read for long.
	_ = g.guard.out.SetWriteDeadline(time.Now().Add(answerTimeout))
	err := guard.Order{Expiry: g.cmd.Expiry, Pgid: g.pgid, Allowance: g.allowance, Seq: g.seq}.Write(g.guard.out)
	if err != nil {
		g.replaceGuard()
		return errSilent // it reads no more
	}
	return nil
}

// replaceGuard kills a guard that owes an answer, so that keepGuard starts another. g.mu
// is held.
func (g *Group) replaceGuard() {
	if g.guard != nil && g.answered < g.seq {
		_ = unix.Kill(g.guard.pid, unix.SIGKILL)
	}
}

// keepGuard reads the guard's answers and replaces a guard that has died.
func (g *Group) keepGuard(p *guardClient) {
	for v := (vacancy{}); p != nil; p = g.nextGuard(&v) {
		for a, err := guard.ReadAnswer(p.in); err == nil; a, err = guard.ReadAnswer(p.in) {
			v = vacancy{}
			g.handleAnswer(a)
		}

		g.mu.Lock()
		if g.over {
			g.mu.Unlock()
			return // finish has ended the guard
		}
		g.guard = nil
		p.end()
		// It can have stopped the group, and the next guard doesn't know that.
		g.due = g.due || g.parted || g.answered < g.seq || g.mayRun() != nil
		g.mu.Unlock()
	}
}

// vacancy is the time in which no guard has answered.
type vacancy struct {
	since time.Time
	next  time.Time     // when another guard is to be started
	pause time.Duration // after that
	why   error         // the reason why the last one couldn't be
}

// nextGuard tries to start another guard until it succeeds. It returns nil once the group
// is over.
func (g *Group) nextGuard(v *vacancy) *guardClient {
	if v.since.IsZero() {
		now := time.Now()
		*v = vacancy{now, now, firstPause, errSilent}
	}
	for {
		now, wait := time.Now(), guard.StopInterval
		if alone := now.Sub(v.since); alone >= unguardedGrace {
			g.stopUnguarded(v.why)
		} else {
			wait = unguardedGrace - alone
		}
		if !now.Before(v.next) {
			p, err := g.startNextGuard()
			v.why = cmp.Or(err, errSilent)
			v.next, v.pause = now.Add(v.pause), min(2*v.pause, lastPause)
			if p != nil || err == os.ErrProcessDone {
				return p
			}
		}
		select {
		case <-time.After(min(wait, v.next.Sub(now))):
		case <-g.done:
			return nil
		}
	}
}

// startNextGuard starts another guard and sends it the current order.
func (g *Group) startNextGuard() (*guardClient, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.over {
		return nil, os.ErrProcessDone
	}
	p, err := g.startGuard()
	if err != nil {
		return nil, err
	}
	g.guard = p
	_ = g.resendOrder()
	g.overdue.Reset(answerTimeout)
	return p, nil
}

// stopUnguarded stops a group that has had no guard for too long: if our process were
// stopped now, the group would run on. nextGuard calls it repeatedly, because another
// process can have continued the group.
func (g *Group) stopUnguarded(why error) {
	g.mu.Lock()
	began := g.unguarded == nil && !g.over
	g.unguarded = fmt.Errorf("%w: %w", ErrUnguarded, why)
	if g.cmd.Expiry != Nothing {
		g.due = true
		_ = g.signalLocked(unix.SIGSTOP)
		g.seekRunaways()
	}
	g.wakeLocked()
	why = g.unguarded
	g.mu.Unlock()
	if began {
		g.reportInterrupted(why, false)
	}
}

// handleAnswer continues the group if the guard had stopped it and it may run, and reports
// when an interruption begins or ends.
func (g *Group) handleAnswer(a guard.Answer) {
	g.mu.Lock()
	g.answered = max(g.answered, a.Seq)
	if g.answered == g.seq {
		g.overdue.Stop()
	}
	guarded := g.unguarded != nil && a.Seq == g.seq
	if guarded {
		g.unguarded = nil
	}
	// The allowance came late: the guard, or we, stopped the group before.
	g.due = g.due || a.Stopped
	if g.due {
		_ = g.continueLocked()
	}
	before := g.parted
	g.parted = a.Parted
	if g.parted {
		g.seekRunaways()
	}
	began, over := !before && g.parted, before && !g.parted && g.mayRun() == nil
	g.wakeLocked()
	g.mu.Unlock()
	if guarded {
		g.reportInterrupted(ErrUnguarded, true)
	}
	if began || over {
		g.reportInterrupted(ErrParted, over)
	}
}

// wakeLocked wakes all goroutines in awaitAnswer.
func (g *Group) wakeLocked() {
	close(g.changed)
	g.changed = make(chan struct{})
}

// awaitAnswer returns once the guard follows the current allowance, so that it doesn't
// stop the group that we continue next.
func (g *Group) awaitAnswer() error {
	g.mu.Lock()
	_ = g.sendOrder()
	g.mu.Unlock()
	return g.awaitGuard(time.After(answerTimeout))
}

// awaitGuard returns once a guard has answered the last order. Without a timeout it waits until there
// has been no guard for unguardedGrace.
func (g *Group) awaitGuard(timeout <-chan time.Time) error {
	g.mu.Lock()
	want := g.seq
	for {
		ok, lost, over, changed := g.answered >= want, g.unguarded, g.over, g.changed
		g.mu.Unlock()
		switch {
		case over:
			return os.ErrProcessDone
		case ok:
			return nil
		case lost != nil:
			return lost
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
