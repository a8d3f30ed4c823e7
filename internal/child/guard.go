//go:build unix

package child

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
	// beat is how often the guard looks at the clocks at least: timers don't
	// count the time that the machine is suspended, and nothing tells of a step.
	beat = 500 * time.Millisecond
	// again is how soon the guard stops a group again that has no allowance,
	// since anybody may have continued it.
	again = 200 * time.Millisecond
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
	inbox := make(chan order)
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

	var now order
	stopped, parted := false, false
	wait := time.Duration(0) // until the first order, none
	for {
		var timer <-chan time.Time
		if wait > 0 {
			timer = time.After(wait)
		}
		asked := false
		select {
		case next, open := <-inbox:
			if !open {
				// The pipe ends only with our process: at a proper end it kills
				// the guard instead (guard.end).
				if now.Pgid > 1 {
					_ = kill(-int(now.Pgid), unix.SIGKILL)
				}
				return
			}
			now, asked = next, true
		case <-timer:
		}

		t := read()
		why := now.judge(t)
		a := answer{Seq: now.Seq}
		if why == ErrParted {
			a.Parted = 1
		}
		if asked {
			if why == nil && stopped {
				a.Stopped, stopped = 1, false
			}
			_ = write(answers, a)
		}

		switch {
		case why == nil:
			wait = beat
		case why == ErrExpired && Expiry(now.Expiry) == Kill:
			_ = kill(-int(now.Pgid), unix.SIGKILL)
			wait = again
		default:
			_ = kill(-int(now.Pgid), unix.SIGSTOP)
			stopped = true
			wait = again
		}
		if why == ErrParted && !parted && !asked {
			_ = write(answers, a)
		}
		parted = why == ErrParted
		if why != ErrExpired && Expiry(now.Expiry) != Nothing {
			wait = min(wait, now.Until-t.Elapsed)
		}
	}
}
