//go:build unix

// Package guard is the process that stops or kills a command's process group when the last
// deadline that it was given is over, and kills it when the process that gives them has ended.
// Package procgroup starts it.
//
// The guard works in init, and its imports are few: Go initialises a package as soon as its
// imports are, in the order of the paths. So the guard runs before the packages of the object
// stores and most others are initialised, which takes longer than all else until its first
// answer.
package guard

import (
	"io"
	"os"
	"os/signal"
	"strconv"
	"syscall"
	"time"

	"github.com/repolock/repolock/internal/clock"
)

const (
	// ClockInterval is the longest time between two looks at the clocks: a timer doesn't
	// count the time of a suspend, and no event announces a step.
	ClockInterval = 500 * time.Millisecond
	// StopInterval is the time after which the guard stops a group again that has no
	// allowance: another process can have continued it.
	StopInterval = 200 * time.Millisecond
)

// Name is the guard's name, and its first argument. It doesn't contain ours, so that pkill, killall
// and pidof don't find the guard when they look for repolock.
const Name = "lock-guard"

// argument makes our own program the guard.
const argument = "__lock-guard"

// Argument is argument. It is a variable for tests that set up a guard in TestMain, which
// then calls Main, because a guard with this argument never gets there.
var Argument = argument

func init() {
	if len(os.Args) == 2 && os.Args[1] == argument {
		// This goroutine keeps the first thread until init returns: each of its wakes would
		// cost a change of threads.
		go Main()
		select {}
	}
}

// Keeps names the variable with the number of files that the guard keeps open, from file
// descriptor 5. It isn't set if there are none.
const Keeps = "REPOLOCK_GUARD_KEEPS"

// Aftermath names the variable with the command line that the guard executes when it has killed the
// command, if there is one: a program, its name and its arguments, each with a line feed after it.
const Aftermath = "REPOLOCK_GUARD_AFTERMATH"

// Main is the guard's whole life. Orders come from the standard input, answers go to file
// descriptor 3, and descriptor 4 is the pipe of the backstop. It never returns.
func Main() {
	// The guard has a session of its own, so no terminal reaches it. Ignore the signals that
	// pidof finds it for, by our executable: only our end ends the guard.
	signal.Ignore(syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGTSTP, syscall.SIGTTIN,
		syscall.SIGTTOU, syscall.SIGPIPE, syscall.SIGUSR1, syscall.SIGUSR2)
	kept, _ := strconv.Atoi(os.Getenv(Keeps)) // 0 if it isn't set
	aftermath, parent := lines(os.Getenv(Aftermath)), os.Getppid()
	CloseInherited(5 + kept)
	ReserveThreads()
	nameProcess(Name)
	w := watcher{answers: os.NewFile(3, "answers"), read: ReadClocks, kill: syscall.Kill}
	if kept > 0 || aftermath != nil {
		w.ended = ended
	}
	w.watch(os.Stdin)
	if w.order.Pgid > 1 {
		// It must not kill the group once more, whose number can become another group's.
		_, _ = syscall.Write(4, []byte("\n"))
		if aftermath != nil {
			for fd := 3; fd < 5+kept; fd++ {
				syscall.CloseOnExec(fd)
			}
			awaitEnd(parent)
			_ = syscall.Exec(aftermath[0], aftermath[1:], nil)
		}
	}
	os.Exit(0)
}

// lines splits a text, whose lines end with a line feed. Package strings is initialised too late for the guard.
func lines(text string) (all []string) {
	from := 0
	for i := range len(text) {
		if text[i] == '\n' {
			all, from = append(all, text[from:i]), i+1
		}
	}
	return all
}

// awaitEnd returns when no process has the number of one that has ended: until its parent has waited for it, it
// seems to run. A parent that never does isn't waited for.
func awaitEnd(pid int) {
	const most = 10 * time.Second
	for pause, waited := time.Millisecond, time.Duration(0); waited < most; pause = min(2*pause, StopInterval) {
		if syscall.Kill(pid, 0) == syscall.ESRCH {
			return
		}
		time.Sleep(pause)
		waited += pause
	}
}

// CloseInherited closes the files, from a number on, that our starter left open for the command,
// so that no reader waits for the guard to close them. The Go runtime's own files are
// close-on-exec and stay open.
func CloseInherited(from int) {
	files, _ := os.ReadDir("/dev/fd")
	for _, f := range files {
		if fd, err := strconv.Atoi(f.Name()); err == nil && fd >= from && inherited(fd) {
			_ = syscall.Close(fd)
		}
	}
}

// watch follows orders until their pipe ends. All signals are sent by this one goroutine,
// so after an answer no earlier stop is still to come.
func (w *watcher) watch(orders io.Reader) {
	inbox := make(chan Order)
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
				// guard instead.
				w.signal(syscall.SIGKILL)
				w.await()
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
	order           Order // the last one
	stopped, parted bool  // the group, by us, and because of ErrParted
	answers         io.Writer
	read            func() clock.Reading
	kill            func(pid int, sig syscall.Signal) error
	ended           func(pgid int) bool // nil if no file is kept
}

func (w *watcher) signal(sig syscall.Signal) {
	if w.order.Pgid > 1 {
		_ = w.kill(-w.order.Pgid, sig)
	}
}

// await returns when no process of the group runs. Our exit closes the files that we keep, and a
// lock that lasts as long as one of them is free then. await sends no signal: after the group's
// end its number can become another group's.
func (w *watcher) await() {
	if w.ended == nil || w.order.Pgid <= 1 {
		return
	}
	for pause := time.Millisecond; !w.ended(w.order.Pgid); pause = min(2*pause, StopInterval) {
		time.Sleep(pause)
	}
}

// enforce lets the group run, or stops or kills it, as the order says. It answers a new
// order. It returns the time until the next look.
func (w *watcher) enforce(ordered bool) (wait time.Duration) {
	now := w.read()
	expiry := w.order.Expiry
	why := w.order.Check(expiry, now)
	a := Answer{Seq: w.order.Seq, Stopped: ordered && w.stopped && why == nil, Parted: why == ErrParted}
	if ordered {
		_ = a.write(w.answers)
	}
	wait = StopInterval
	switch {
	case why == nil:
		wait = ClockInterval
		w.stopped = w.stopped && !ordered
	case why == ErrExpired && expiry == Kill:
		w.signal(syscall.SIGKILL)
	default:
		w.signal(syscall.SIGSTOP)
		w.stopped = true
	}
	if a.Parted && !w.parted && !ordered {
		_ = a.write(w.answers)
	}
	w.parted = a.Parted
	if why != ErrExpired && expiry != Nothing {
		wait = min(wait, w.order.Until-now.Elapsed)
	}
	return wait
}
