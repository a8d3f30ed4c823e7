//go:build unix

package child

import (
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// patience is how long a guard may take to answer; a variable for tests.
var patience = 3 * time.Second

const (
	// grace is how long the group may run on without a guard, while others are started.
	grace = time.Second
	// firstPause and lastPause are between the starts of two guards of which the first
	// failed or never answered.
	firstPause = 50 * time.Millisecond
	lastPause  = 5 * time.Second
)

// errSilent is a guard that was started and ended again.
var errSilent = errors.New("it ends without an answer")

// guard is our side of a guard process.
type guard struct {
	pid     int
	orders  *os.File
	answers *os.File
}

// startGuard runs our own program as the guard. When it returns, the new process
// will read whatever is sent, whatever becomes of us.
func startGuard() (*guard, error) {
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	defer null.Close()
	theirOrders, orders, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer theirOrders.Close()
	answers, theirAnswers, err := os.Pipe()
	if err != nil {
		orders.Close()
		return nil, err
	}
	defer theirAnswers.Close()

	pid, err := spawn(guardProgram(), []string{os.Args[0], guardArg}, &syscall.ProcAttr{
		Dir:   "/",        // keep nobody's file system busy
		Env:   []string{}, // and nobody's secrets
		Files: []uintptr{theirOrders.Fd(), null.Fd(), null.Fd(), theirAnswers.Fd()},
		Sys:   &syscall.SysProcAttr{Setsid: true},
	})
	if err != nil {
		orders.Close()
		answers.Close()
		return nil, &os.PathError{Op: "start the guard", Path: guardProgram(), Err: err}
	}
	return &guard{pid, orders, answers}, nil
}

// send gives an order. It doesn't wait, except for a guard that hasn't read for
// ages and whose pipe is full.
func (p *guard) send(o order) error {
	_ = p.orders.SetWriteDeadline(time.Now().Add(patience))
	return write(p.orders, o)
}

// end kills the guard and waits until it is gone: from then on it signals
// nobody. The caller must know that it is still there.
func (p *guard) end() {
	_ = unix.Kill(p.pid, unix.SIGKILL)
	await(p.pid)
	p.orders.Close()
	p.answers.Close()
}

// tell gives the guard the current order. After an error another guard is started,
// which will be given it. g.mu is held.
func (g *Group) tell() error {
	if g.answered == g.seq {
		g.overdue.Reset(patience)
	}
	g.seq++
	return g.repeat()
}

func (g *Group) repeat() error {
	if g.guard == nil {
		return ErrUnguarded // keepGuard will
	}
	err := g.guard.send(order{orderMagic, uint32(g.cmd.Expiry), int64(g.pgid), g.allowance, g.seq})
	if err != nil {
		g.replaceGuard()
	}
	return err
}

// replaceGuard kills the guard, so that keepGuard starts another. g.mu is held.
func (g *Group) replaceGuard() {
	if g.guard != nil && g.answered < g.seq {
		_ = unix.Kill(g.guard.pid, unix.SIGKILL)
	}
}

// keepGuard hears the guard's answers and replaces a guard that has died.
func (g *Group) keepGuard(p *guard) {
	defer g.work.Done()
	for v := (vacancy{}); p != nil; p = g.nextGuard(&v) {
		for {
			a, err := readAnswer(p.answers)
			if err != nil {
				break
			}
			v = vacancy{}
			g.heard(a)
		}

		g.mu.Lock()
		if g.over {
			g.mu.Unlock()
			return // finish has ended the guard
		}
		g.guard = nil
		p.end()
		// It may have stopped the group, and the next one doesn't know.
		g.due = g.due || g.answered < g.seq || g.judge() != nil
		g.mu.Unlock()
	}
}

// vacancy is the time in which no guard has answered.
type vacancy struct {
	since time.Time
	next  time.Time     // when another guard is to be started
	pause time.Duration // after that
	why   error         // the last one couldn't be
}

// nextGuard starts another guard, for as long as it takes. It returns nil once the
// group is over.
func (g *Group) nextGuard(v *vacancy) *guard {
	if v.since.IsZero() {
		now := time.Now()
		*v = vacancy{now, now, firstPause, errSilent}
	}
	for {
		now, wait := time.Now(), again
		if alone := now.Sub(v.since); alone >= grace {
			g.stopUnguarded(v.why)
		} else {
			wait = grace - alone
		}
		if !now.Before(v.next) {
			p, err := g.start()
			if err == nil {
				v.why = errSilent
			} else {
				v.why = err
			}
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

// start starts another guard, with the current order.
func (g *Group) start() (*guard, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.over {
		return nil, os.ErrProcessDone
	}
	p, err := startGuard()
	if err != nil {
		return nil, err
	}
	g.guard = p
	_ = g.repeat()
	g.overdue.Reset(patience)
	return p, nil
}

// stopUnguarded stops the group, which has had no guard for too long: if our process
// stopped now, the group would run on. It does so again and again, because another
// process might have continued it.
func (g *Group) stopUnguarded(why error) {
	g.mu.Lock()
	began := !g.unguarded && !g.over
	g.unguarded = true
	if g.cmd.Expiry != Nothing {
		g.due = true
		_ = g.signalLocked(unix.SIGSTOP)
		g.follow()
	}
	g.wakeLocked()
	g.mu.Unlock()
	if began {
		g.interrupted(fmt.Errorf("%w: %w", ErrUnguarded, why), false)
	}
}

func (g *Group) heard(a answer) {
	g.mu.Lock()
	g.answered = max(g.answered, a.Seq)
	if g.answered == g.seq {
		g.overdue.Stop()
	}
	guarded := g.unguarded && a.Seq == g.seq
	if guarded {
		g.unguarded = false
	}
	// The allowance came late and the guard, or we, had stopped the group meanwhile.
	g.due = g.due || a.Stopped != 0
	if g.due {
		_ = g.continueLocked()
	}
	before := g.parted
	g.parted = a.Parted != 0
	if g.parted {
		g.follow()
	}
	began, over := !before && g.parted, before && !g.parted && g.judge() == nil
	g.wakeLocked()
	g.mu.Unlock()
	if guarded {
		g.interrupted(ErrUnguarded, true)
	}
	if began || over {
		g.interrupted(ErrParted, over)
	}
}

// wakeLocked wakes everyone in agree.
func (g *Group) wakeLocked() {
	close(g.news)
	g.news = make(chan struct{})
}

// agree returns once the guard goes by the current allowance, so that it doesn't
// stop what is continued next.
func (g *Group) agree() error {
	timeout := time.After(patience)
	g.mu.Lock()
	_ = g.tell()
	want := g.seq
	for {
		ok, lost, over, news := g.answered >= want, g.unguarded, g.over, g.news
		g.mu.Unlock()
		switch {
		case over:
			return os.ErrProcessDone
		case ok:
			return nil
		case lost:
			return ErrUnguarded
		}
		select {
		case <-news:
		case <-timeout:
			return ErrUnguarded
		case <-g.done:
			return os.ErrProcessDone
		}
		g.mu.Lock()
	}
}
