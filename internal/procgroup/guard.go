//go:build unix

package procgroup

import (
	"io"
	"os"
	"os/signal"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"github.com/repolock/repolock/internal/clock"
)

const (
	// clockInterval is the longest time between two looks at the clocks: a timer doesn't
	// count the time of a suspend, and no event announces a step.
	clockInterval = 500 * time.Millisecond
	// stopInterval is the time after which the guard stops a group again that has no
	// allowance: another process can have continued it.
	stopInterval = 200 * time.Millisecond
)

// GuardMain must be the first call in main. It returns at once, unless this process was
// started as a guard; then it never returns.
func GuardMain() {
	if len(os.Args) != 2 || os.Args[1] != guardArg {
		return
	}
	// The guard has a session of its own, so no terminal reaches it. Ignore what killall
	// sends to every process of our name: only our end ends the guard.
	signal.Ignore(unix.SIGINT, unix.SIGTERM, unix.SIGHUP, unix.SIGQUIT, unix.SIGTSTP, unix.SIGTTIN,
		unix.SIGTTOU, unix.SIGPIPE, unix.SIGUSR1, unix.SIGUSR2)
	CloseInherited()
	ReserveThreads()
	nameProcess("repolock-guard")
	watch(os.Stdin, os.NewFile(3, "answers"), ReadClocks, unix.Kill)
	os.Exit(0)
}

// CloseInherited closes the files that our starter left open for the command, so that no
// reader waits for the guard to close them. The Go runtime's own files are close-on-exec
// and stay open.
func CloseInherited() {
	files, _ := os.ReadDir("/dev/fd")
	for _, f := range files {
		fd, err := strconv.Atoi(f.Name())
		if err != nil || fd <= 3 {
			continue
		}
		if flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err == nil && flags&unix.FD_CLOEXEC == 0 {
			_ = unix.Close(fd)
		}
	}
}

// watch follows orders until their pipe ends. All signals are sent by this one goroutine,
// so after an answer no earlier stop is still to come.
func watch(orders io.Reader, answers io.Writer, read func() clock.Reading, kill func(pid int, sig unix.Signal) error) {
	inbox := make(chan guardOrder)
	go func() {
		defer close(inbox)
		for {
			o, err := readOrder(orders)
			if err != nil {
				return
			}
			inbox <- o
		}
	}()

	w := watcher{answers: answers, read: read, kill: kill}
	wait := time.Duration(0) // no timer before the first order
	for {
		var timer <-chan time.Time
		if wait > 0 {
			timer = time.After(wait)
		}
		select {
		case next, open := <-inbox:
			if !open {
				// The process that gave the orders is dead: at a proper end it kills the
				// guard instead (guardClient.end).
				w.signal(unix.SIGKILL)
				return
			}
			w.order = next
			wait = w.enforce(true)
		case <-timer:
			wait = w.enforce(false)
		}
	}
}

// watcher is a guard at work.
type watcher struct {
	order           guardOrder // the last one
	stopped, parted bool       // the group, by us, and because of ErrParted
	answers         io.Writer
	read            func() clock.Reading
	kill            func(pid int, sig unix.Signal) error
}

func (w *watcher) signal(sig unix.Signal) {
	if w.order.Pgid > 1 {
		_ = w.kill(-int(w.order.Pgid), sig)
	}
}

// enforce lets the group run, or stops or kills it, as the order says. It answers a new
// order. It returns the time until the next look.
func (w *watcher) enforce(ordered bool) (wait time.Duration) {
	now := w.read()
	expiry := w.order.Expiry
	why := w.order.check(expiry, now)
	a := guardAnswer{Seq: w.order.Seq, Stopped: ordered && w.stopped && why == nil, Parted: why == ErrParted}
	if ordered {
		_ = write(w.answers, a)
	}
	wait = stopInterval
	switch {
	case why == nil:
		wait = clockInterval
		w.stopped = w.stopped && !ordered
	case why == ErrExpired && expiry == Kill:
		w.signal(unix.SIGKILL)
	default:
		w.signal(unix.SIGSTOP)
		w.stopped = true
	}
	if a.Parted && !w.parted && !ordered {
		_ = write(w.answers, a)
	}
	w.parted = a.Parted
	if why != ErrExpired && expiry != Nothing {
		wait = min(wait, w.order.Until-now.Elapsed)
	}
	return wait
}
