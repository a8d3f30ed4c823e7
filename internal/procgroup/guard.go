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
	// clockInterval is how often the guard looks at the clocks at least: timers don't
	// count the time that the machine is suspended, and nothing tells of a step.
	clockInterval = 500 * time.Millisecond
	// stopInterval is how soon the guard stops a group stopInterval that has no allowance,
	// since anybody may have continued it.
	stopInterval = 200 * time.Millisecond
)

// GuardMain must be the first thing that the main program calls. It returns at
// once, unless this process was started as a guard; then it never returns.
func GuardMain() {
	if len(os.Args) != 2 || os.Args[1] != guardArg {
		return
	}
	// The guard has a session of its own, so no terminal reaches it; this is for
	// whoever signals every process of a name. Only our end ends it.
	signal.Ignore(unix.SIGINT, unix.SIGTERM, unix.SIGHUP, unix.SIGQUIT, unix.SIGTSTP, unix.SIGTTIN,
		unix.SIGTTOU, unix.SIGPIPE, unix.SIGUSR1, unix.SIGUSR2)
	CloseInherited()
	ReserveThreads()
	nameProcess("repolock-guard")
	watch(os.Stdin, os.NewFile(3, "answers"), ReadClocks, unix.Kill)
	os.Exit(0)
}

// CloseInherited closes what whoever started us left open for the command, so
// that nobody waits for the guard to close it. The Go runtime's own files differ:
// they are close-on-exec.
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

// watch is the guard's life. All its signals come from this one goroutine, so
// after an answer no stop of before is on its way.
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
	wait := time.Duration(0) // until the first order, none
	for {
		var timer <-chan time.Time
		if wait > 0 {
			timer = time.After(wait)
		}
		select {
		case next, open := <-inbox:
			if !open {
				// The pipe ends only with our process: at a proper end it kills
				// the guard instead (guard.end).
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
	stopped, parted bool  // the group, by us, and because of ErrParted
	answers         io.Writer
	read            func() clock.Reading
	kill            func(pid int, sig unix.Signal) error
}

func (w *watcher) signal(sig unix.Signal) {
	if w.order.Pgid > 1 {
		_ = w.kill(-int(w.order.Pgid), sig)
	}
}

// enforce lets the group run, or stops or kills it, as the order says, and answers the
// order if it is new. It returns how long to wait before the next look.
func (w *watcher) enforce(ordered bool) (wait time.Duration) {
	now := w.read()
	why := w.order.check(now)
	a := guardAnswer{Seq: w.order.Seq}
	if why == ErrParted {
		a.Parted = 1
	}
	if ordered {
		if why == nil && w.stopped {
			a.Stopped, w.stopped = 1, false
		}
		_ = write(w.answers, a)
	}

	expiry := Expiry(w.order.Expiry)
	switch {
	case why == nil:
		wait = clockInterval
	case why == ErrExpired && expiry == Kill:
		w.signal(unix.SIGKILL)
		wait = stopInterval
	default:
		w.signal(unix.SIGSTOP)
		w.stopped = true
		wait = stopInterval
	}
	if why == ErrParted && !w.parted && !ordered {
		_ = write(w.answers, a)
	}
	w.parted = why == ErrParted
	if why != ErrExpired && expiry != Nothing {
		wait = min(wait, w.order.Until-now.Elapsed)
	}
	return wait
}
