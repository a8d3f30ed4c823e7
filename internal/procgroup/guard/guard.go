//go:build unix

// Package guard is the process that stops or kills a command's process group at the end of its allowance,
// and kills it when our process has ended. Package procgroup starts the guard, and shares a page of memory with it.
//
// The guard runs in init, and imports few packages. Go initialises a package as soon as its imports are
// initialised, in the order of the paths. So the guard runs before the packages of the object stores are
// initialised, which would take most of the time until its first answer.
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
	// LookInterval is the longest time between two looks of the guard at the page. A guard that doesn't look for
	// longer is stopped itself, and repolock replaces it. If the system reports no suspend and no step of the wall
	// clock, the guard looks each clock.Tick.
	LookInterval = 5 * time.Second
	// StopInterval is the time after which the guard stops a stopped group once more, because another process
	// can continue it.
	StopInterval = 200 * time.Millisecond
	// HoldInterval is the time after which the guard looks again whether another process has continued a stopped
	// group. The kernel reports that only to the parent of each process.
	HoldInterval = 10 * time.Millisecond
	// AlarmInterval replaces HoldInterval for one StopInterval after a look has found that another process has
	// continued the group.
	AlarmInterval = time.Millisecond
)

// Name is the guard's name, and its first argument. It doesn't contain "repolock", so that pkill, killall
// and pidof with our name don't find the guard.
const Name = "lock-guard"

// argument makes our own program the guard.
const argument = "__lock-guard"

// Argument is the argument with which procgroup starts the guard. A test that changes the guard sets
// another one, and calls Main in its TestMain: with the original argument, init runs the guard before TestMain.
var Argument = argument

// anchorArgument makes our own program an anchor.
const anchorArgument = "__lock-anchor"

func init() {
	if len(os.Args) == 2 && os.Args[1] == anchorArgument {
		_, _ = syscall.Read(0, make([]byte, 1))
		os.Exit(0)
	}
	if len(os.Args) == 2 && os.Args[1] == argument {
		// Main needs another goroutine: init binds this one to the first thread, and each wake-up would change the
		// thread.
		go Main()
		select {}
	}
}

// Keeps is the environment variable with the number of files that the guard keeps open, from file
// descriptor 6 on. It isn't set if the number is 0.
const Keeps = "REPOLOCK_GUARD_KEEPS"

// Aftermath is the environment variable with the command line that the guard executes after it has killed
// the group: a program, its name and its arguments, each followed by a line feed. If it isn't set, the
// guard executes nothing.
const Aftermath = "REPOLOCK_GUARD_AFTERMATH"

// first is the first descriptor of the kept files.
const first = 6

// Main runs the guard. Each byte on the standard input is a ring: it asks for a look at the page, and an answer on
// file descriptor 3. Descriptor 4 is the pipe to the backstop, and 5 the page. Main never returns.
func Main() {
	// The guard must end only when repolock's process has ended. It has a group of its own, so a terminal sends it
	// no signal. But pidof finds it by our executable, so it ignores signals.
	signal.Ignore(syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGTSTP, syscall.SIGTTIN,
		syscall.SIGTTOU, syscall.SIGPIPE, syscall.SIGUSR1, syscall.SIGUSR2)
	kept, _ := strconv.Atoi(os.Getenv(Keeps)) // 0 if Keeps isn't set
	aftermath, parent := lines(os.Getenv(Aftermath)), os.Getppid()
	CloseInherited(first + kept)
	ReserveThreads(OwnThreads)
	nameProcess(Name)
	page, err := Map(first - 1)
	if err != nil {
		os.Exit(1)
	}
	w := watcher{page: page, answers: os.NewFile(3, "answers"), clock: clock.System{}, kill: syscall.Kill}
	if kept > 0 || aftermath != nil {
		w.ended = ended
	}
	w.runs, w.anchor = new(Members).Continued, new(anchor)
	_ = syscall.SetNonblock(0, true) // a read that blocks would keep our only thread for Go code
	w.watch(os.NewFile(0, "rings"))
	if w.pgid() != 0 {
		// The backstop must not kill the group again, because another group can get its number.
		_, _ = syscall.Write(4, []byte("\n"))
		if aftermath != nil {
			for fd := 3; fd < first+kept; fd++ {
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

// awaitEnd waits until an ended process is reaped, because a process that isn't reaped seems to run. It gives up
// after 10 s, because some parents never reap.
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

// watch follows the page until the pipe is closed. Each byte on the pipe is a ring. This goroutine alone sends
// signals, so it sends no signal because of an earlier allowance once it follows a later one.
func (w *watcher) watch(pipe io.Reader) {
	rings := make(chan struct{})
	go func() {
		defer close(rings)
		b := make([]byte, 1)
		for n, _ := pipe.Read(b); n > 0; n, _ = pipe.Read(b) {
			rings <- struct{}{}
		}
	}()
	watch := clock.NewWatch(w.clock)
	defer watch.Stop()

	for rung := false; ; {
		wait := w.look(rung)
		rung = false
		select {
		case _, rung = <-rings:
			if !rung {
				// repolock has died: if it ends properly, it kills the guard first.
				w.signal(syscall.SIGKILL)
				w.await()
				return
			}
		case <-watch.After(wait):
		}
	}
}

// watcher is the state of the guard.
type watcher struct {
	page     *Page
	reported uint32 // the version of the last allowance for which the guard has reported a stop
	answers  io.Writer
	clock    clock.Clock
	kill     func(pid int, sig syscall.Signal) error
	ended    func(pgid int) bool                    // nil if no file is kept
	runs     func(pgid, except int, anew bool) bool // reports whether a process that was sent SIGSTOP runs; anew: also a new one

	held   held
	anchor interface { // nil for tests
		hold(pgid int) (pid int)
		release()
	}
}

// held is the state of a group that may not run.
type held struct {
	is       bool
	version  uint32        // of the allowance, at the last SIGSTOP
	sigconts uint32        // of the page, at the last SIGSTOP
	stopped  time.Duration // the time of the last SIGSTOP
	alarm    time.Duration // the time until which the guard looks each AlarmInterval
}

// pgid returns the group to signal, or 0 if it has no allowance yet.
func (w *watcher) pgid() int {
	// kill(2): 0 is our own group, and -1 every process.
	if pgid := int(w.page.pgid.Load()); pgid > 1 && w.page.Version() > 0 {
		return pgid
	}
	return 0
}

func (w *watcher) signal(sig syscall.Signal) {
	if pgid := w.pgid(); pgid != 0 {
		_ = w.kill(-pgid, sig)
	}
}

// await returns when no process of the group runs. The guard must not exit before that, because its exit closes
// the kept files, and a lock that dies with one of them is then free. await sends no signal, because another group
// can have the number after the group's end.
func (w *watcher) await() {
	if w.ended == nil || w.pgid() == 0 {
		return
	}
	for pause := time.Millisecond; !w.ended(w.pgid()); pause = min(2*pause, StopInterval) {
		time.Sleep(pause)
	}
}

// look reads the allowance, and lets the group run, stops it or kills it. It answers if a ring has asked for the
// look, and after the first stop for each allowance. It returns the time until the next look.
func (w *watcher) look(rung bool) (wait time.Duration) {
	for {
		a, version := w.page.allowance()
		now := clock.Read(w.clock)
		if w.page.Version() != version {
			continue // it was replaced, perhaps before its end
		}
		wait, stopped := w.enforce(a, now)
		// If the allowance was replaced meanwhile, the group can have been continued before the stop.
		if stopped && (version != w.reported || w.page.Version() != version) {
			rung, w.reported = true, version
		}
		if w.page.Version() != version {
			continue
		}
		w.page.Follow(version)
		if rung {
			_, _ = w.answers.Write([]byte{0})
		}
		return wait
	}
}

// enforce does what an allowance demands at a time. It returns the time until the next look, and whether it has
// something to report: it has stopped the group, or another process has continued it.
func (w *watcher) enforce(a Allowance, now clock.Reading) (wait time.Duration, stopped bool) {
	expiry := Expiry(w.page.expiry.Load())
	left := a.Until - now.Elapsed
	why, paused := a.Check(expiry, now), w.page.paused.Load() != 0
	if why == ErrExpired {
		left = StopInterval
	}
	switch {
	case w.pgid() == 0 || expiry == Nothing && !paused:
		w.release()
		return LookInterval, false
	case why == nil && !paused:
		w.release()
		return min(LookInterval, left), false
	case why == ErrExpired && expiry == Kill:
		w.signal(syscall.SIGKILL)
		return StopInterval, false
	}
	wait, stopped = w.hold(now.Elapsed)
	if expiry != Nothing {
		wait = min(wait, left)
	}
	return wait, stopped
}

// release notes that the group may run.
func (w *watcher) release() {
	if w.held.is && w.page.Continued() <= MostContinued {
		w.page.continued.Store(0)
	}
	if w.held.is && w.anchor != nil {
		w.anchor.release()
		w.page.anchor.Store(0)
	}
	w.held = held{}
}

// hold keeps the group stopped. It kills a group that another process continues more often than MostContinued. It
// returns the time until the next look, and whether the group was stopped.
func (w *watcher) hold(now time.Duration) (wait time.Duration, stopped bool) {
	h, version, sigconts := &w.held, w.page.Version(), w.page.SIGCONTs()
	due := !h.is || h.version != version || now-h.stopped >= StopInterval
	continued := h.is && w.runs(w.pgid(), w.page.Anchor(), due)
	if continued && h.sigconts == sigconts {
		h.alarm = now + StopInterval
		w.page.continued.Add(1)
		w.reported = version - 1
	}
	if w.page.Continued() > MostContinued {
		w.signal(syscall.SIGKILL)
		return StopInterval, true
	}
	if due || continued {
		w.page.Stop(func() { w.signal(syscall.SIGSTOP) })
		*h = held{true, version, sigconts, now, h.alarm}
		stopped = true
		if w.anchor != nil {
			w.page.anchor.Store(int32(w.anchor.hold(w.pgid())))
		}
	}
	if now < h.alarm {
		return AlarmInterval, stopped
	}
	return HoldInterval, stopped
}
