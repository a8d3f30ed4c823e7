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
	// answerTimeout is the time in which a guard must answer. It is long because a busy machine can take
	// seconds to start a program.
	answerTimeout = 10 * time.Second
	// unguardedGrace is how long the group runs without a guard while we start another.
	unguardedGrace = time.Second
	// The pause before another guard is started doubles from firstPause to lastPause.
	firstPause = 50 * time.Millisecond
	lastPause  = 5 * time.Second
)

// errSilent is the reason for ErrUnguarded if each guard ends without an answer.
var errSilent = errors.New("it ends without an answer")

// guardClient is our side of a guard process. We write orders to out, and read answers from in.
type guardClient struct {
	pid int
	pipes
}

// startGuard runs our own program as the guard. The guard keeps the backstop's pipe and the files of keep
// open until its end. After startGuard has returned, the guard reads its orders even if we are killed.
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
		Dir:   "/", // so that the guard keeps no file system busy
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

// end kills and reaps the guard. After end, the guard sends no signal. It must not be called twice.
func (p *guardClient) end() {
	_ = unix.Kill(p.pid, unix.SIGKILL)
	await(p.pid)
	p.close()
}

// sendOrder sends the current order, with a new number. If that fails, keepGuard starts another guard and
// sends it the same order. g.mu is held.
func (g *Group) sendOrder() error {
	if g.answered == g.seq {
		g.overdue.Reset(answerTimeout)
	}
	g.seq++
	return g.resendOrder()
}

func (g *Group) resendOrder() error {
	if g.guard == nil {
		return ErrUnguarded // keepGuard sends the order to the next guard
	}
	// The write blocks only if the pipe is full, because the guard has not read for long.
	_ = g.guard.out.SetWriteDeadline(time.Now().Add(answerTimeout))
	err := guard.Order{Expiry: g.cmd.Expiry, Pgid: g.pgid, Allowance: g.allowance, Seq: g.seq}.Write(g.guard.out)
	if err != nil {
		g.replaceGuard()
		return errSilent
	}
	return nil
}

// replaceGuard kills a guard that hasn't answered the last order, so that keepGuard starts another. g.mu
// is held.
func (g *Group) replaceGuard() {
	if g.guard != nil && g.answered < g.seq {
		_ = unix.Kill(g.guard.pid, unix.SIGKILL)
	}
}

// keepGuard reads the answers of a guard. If the guard dies, it replaces it.
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
		// The guard might have stopped the group. The next guard doesn't know that.
		g.due = g.due || g.parted || g.answered < g.seq || g.mayRun() != nil
		g.mu.Unlock()
	}
}

// vacancy is the time since the last answer of a guard that has died.
type vacancy struct {
	since time.Time
	next  time.Time     // when to start another guard
	pause time.Duration // between next and the start after it
	why   error         // why the last start failed
}

// nextGuard starts another guard. If the start fails, nextGuard tries again until it succeeds or the group
// is over; then it returns nil.
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

// startNextGuard starts another guard and sends it the last order.
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

// stopUnguarded stops a group that has had no guard for too long: if our process were stopped now, nothing
// would stop the group in time. nextGuard calls it repeatedly, because another process can continue the
// group.
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

// handleAnswer continues the group if the guard had stopped it and it may run. It reports the begin and
// the end of an interruption.
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
	// If the allowance was late, the guard or we have stopped the group.
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

// wakeLocked wakes all goroutines in awaitGuard.
func (g *Group) wakeLocked() {
	close(g.changed)
	g.changed = make(chan struct{})
}

// awaitAnswer returns when the guard follows the current allowance. After that, the guard can't stop the
// group because of an earlier one.
func (g *Group) awaitAnswer() error {
	g.mu.Lock()
	_ = g.sendOrder()
	g.mu.Unlock()
	return g.awaitGuard(time.After(answerTimeout))
}

// awaitGuard returns when a guard has answered the last order. It fails at the timeout, which can be nil,
// or after unguardedGrace without a guard.
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
