//go:build unix

// Package guard is the process that stops or kills a command's process group at the end of its allowance,
// and kills it when our process has ended. Package procgroup starts the guard and sends it orders.
//
// The guard runs in init, and imports few packages. Go initialises a package as soon as its imports are
// initialised, in the order of the paths. So the guard runs before the packages of the object stores are
// initialised, which would take longer than everything else until its first answer.
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
	// ClockInterval is the longest time between two readings of the clocks. Timers don't count suspend,
	// and no event announces a step.
	ClockInterval = 500 * time.Millisecond
	// StopInterval is the time after which the guard stops a group without an allowance again, because
	// another process can continue it.
	StopInterval = 200 * time.Millisecond
)

// Name is the guard's name, and its first argument. It doesn't contain "repolock", so that pkill, killall
// and pidof with our name don't find the guard.
const Name = "lock-guard"

// argument makes our own program the guard.
const argument = "__lock-guard"

// Argument is the argument with which procgroup starts the guard. A test that changes the guard sets
// another one, and calls Main in its TestMain. With the original argument, TestMain never runs.
var Argument = argument

func init() {
	if len(os.Args) == 2 && os.Args[1] == argument {
		// In init, this goroutine is bound to the first thread, so that each wake-up would change the thread.
		go Main()
		select {}
	}
}

// Keeps is the environment variable with the number of files that the guard keeps open, from file
// descriptor 5 on. It isn't set if the number is 0.
const Keeps = "REPOLOCK_GUARD_KEEPS"

// Aftermath is the environment variable with the command line that the guard executes after it has killed
// the group: a program, its name and its arguments, each followed by a line feed. If it isn't set, the
// guard executes nothing.
const Aftermath = "REPOLOCK_GUARD_AFTERMATH"

// Main runs the guard. It reads orders from the standard input and writes answers to file descriptor 3.
// Descriptor 4 is the pipe to the backstop. Main never returns.
func Main() {
	// Only our end may end the guard. The guard has a session of its own, so a terminal sends it no
	// signal. But pidof finds it by our executable, so it ignores signals.
	signal.Ignore(syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGTSTP, syscall.SIGTTIN,
		syscall.SIGTTOU, syscall.SIGPIPE, syscall.SIGUSR1, syscall.SIGUSR2)
	kept, _ := strconv.Atoi(os.Getenv(Keeps)) // 0 if Keeps isn't set
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
		// The backstop must not kill the group again, because another group can have its number then.
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

// lines splits a text at its line feeds. Package strings is initialised too late for the guard.
func lines(text string) (all []string) {
	from := 0
	for i := range len(text) {
		if text[i] == '\n' {
			all, from = append(all, text[from:i]), i+1
		}
	}
	return all
}

// awaitEnd returns when a process that has ended doesn't exist any more: while its parent hasn't reaped it,
// it seems to run. awaitEnd gives up after 10 s, because some parents never reap.
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

// CloseInherited closes the inherited files with this number or a higher one. They are for the command, and
// the reader of a pipe would wait until the guard closes them too. Go's own files are close-on-exec, and
// stay open.
func CloseInherited(from int) {
	files, _ := os.ReadDir("/dev/fd")
	for _, f := range files {
		if fd, err := strconv.Atoi(f.Name()); err == nil && fd >= from && inherited(fd) {
			_ = syscall.Close(fd)
		}
	}
}

// watch follows orders until their pipe is closed. This goroutine alone sends signals, so it sends no
// signal of an earlier order after an answer.
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
				// Our process has died: if it ends properly, it kills the guard first.
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

// watcher is the state of the guard.
type watcher struct {
	order   Order // the last order
	stopped bool  // the guard has stopped the group
	parted  bool  // it stops the group because of ErrParted
	answers io.Writer
	read    func() clock.Reading
	kill    func(pid int, sig syscall.Signal) error
	ended   func(pgid int) bool // nil if no file is kept
}

func (w *watcher) signal(sig syscall.Signal) {
	if w.order.Pgid > 1 {
		_ = w.kill(-w.order.Pgid, sig)
	}
}

// await returns when no process of the group runs. Only then the guard may exit and so close its files: a
// lock that dies with one of them is free after that. await sends no signal, because another group can have
// the number after the group's end.
func (w *watcher) await() {
	if w.ended == nil || w.order.Pgid <= 1 {
		return
	}
	for pause := time.Millisecond; !w.ended(w.order.Pgid); pause = min(2*pause, StopInterval) {
		time.Sleep(pause)
	}
}

// enforce lets the group run, stops it or kills it. It answers an order that is new (ordered). It returns
// the time until the next call.
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
