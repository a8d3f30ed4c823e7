//go:build unix

package child

import (
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// patience is how long a guard may take to answer; a variable for tests.
var patience = 3 * time.Second

// attempts is how many guards in a row may die without one answer.
const attempts = 3

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
		return ErrUnguarded // keepGuard will, or has given up
	}
	err := g.guard.send(order{orderMagic, uint32(g.cmd.Expiry), int64(g.pgid), g.until, g.seq})
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
	for failures := 0; ; {
		for {
			a, err := readAnswer(p.answers)
			if err != nil {
				break
			}
			failures = 0
			g.heard(a)
		}

		g.mu.Lock()
		if g.over {
			g.mu.Unlock()
			return // finish has ended the guard
		}
		g.guard = nil
		p.end()
		g.mu.Unlock()

		for {
			if failures++; failures > attempts {
				g.mu.Lock()
				g.unguarded = true
				g.wakeLocked()
				g.mu.Unlock()
				g.trouble(ErrUnguarded)
				return
			}
			if failures > 1 {
				select {
				case <-time.After(time.Duration(failures) * 50 * time.Millisecond):
				case <-g.done:
					return
				}
			}
			g.mu.Lock()
			if g.over {
				g.mu.Unlock()
				return
			}
			var err error
			if p, err = startGuard(); err == nil {
				g.guard = p
				_ = g.repeat()
				g.overdue.Reset(patience)
				g.mu.Unlock()
				break
			}
			g.mu.Unlock()
		}
	}
}

func (g *Group) heard(a answer) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.answered = max(g.answered, a.Seq)
	if g.answered == g.seq {
		g.overdue.Stop()
	}
	if a.Stopped != 0 {
		// The allowance came late and the guard had stopped the group meanwhile.
		_ = g.continueLocked()
	}
	g.wakeLocked()
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
