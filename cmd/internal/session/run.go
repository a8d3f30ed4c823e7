package session

import (
	"context"
	"os"
	"os/signal"
	"slices"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/repolock/repolock/cmd/internal/events"
	"github.com/repolock/repolock/internal/clock"
	"github.com/repolock/repolock/internal/procgroup"
	"github.com/repolock/repolock/internal/procgroup/guard"
)

// Command is a command with the lock that it needs.
type Command struct {
	Request   Request
	Args      []string
	OnLost    string        // pause, term, kill or warn
	ResumeFor time.Duration // bounds the time to resume a lost lock
	Survey    *Survey       // or nil
	Aftermath []string      // for procgroup.Command
}

// session is one command under one lock.
type session struct {
	Command
	holder
	signals <-chan os.Signal
	pending []os.Signal // signals from before the start of the command
	group   *procgroup.Group
	allowed procgroup.Allowance // the last one that the group got
	inner   bool                // this process runs under another lock
	denied  atomic.Bool         // the shell continued this process after the loss
	lost    error               // the final loss of the lock
	killed  bool                // we killed the command because of the loss
}

// Run acquires the lock, runs the command, and releases the lock. It returns the exit
// code of the command, or an error of NotAcquired if there is no lock. If Ctrl-C has ended the command, Run
// interrupts this process.
func (c Command) Run() (int, error) {
	s := &session{Command: c, holder: holder{Request: c.Request, show: c.Request.Console.Event}}
	code, err := s.run()
	if err == nil {
		s.interrupted()
	}
	return code, err
}

// run prepares the command, acquires the lock, and only then starts the command. It releases the lock after the end
// of the last process of the command's group.
func (s *session) run() (int, error) {
	ctx, cancel := context.WithCancelCause(context.Background())
	defer cancel(nil)
	signals, stop := procgroup.Signals()
	defer stop()
	s.signals, s.cancel = signals, cancel
	s.inner = len(heldOuterLocks()) > 0
	// Ignore SIGPIPE: a closed stderr must not kill us while we hold the lock.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)

	if err := procgroup.CheckRoom(); err != nil {
		return 0, err
	}
	guard.ReserveThreads(guard.Threads)
	if err := s.open(); err != nil {
		return 0, err
	}
	prepared, err := s.prepare()
	if err != nil {
		s.notAcquired(err)
		return 0, err
	}
	s.Survey.Start(ctx)
	if err := s.acquireOrSignal(ctx); err != nil {
		prepared.Close()
		select {
		case sig := <-s.signals:
			if Ends(sig) {
				return 0, Signalled(sig)
			}
		default:
		}
		return 0, NotAcquired(err, s.Locker.Answered() || s.Survey.answered())
	}
	defer s.Survey.Report()()
	defer s.release()
	began := clock.System{}.Now()
	group, err := prepared.Start(s.environ(), func() procgroup.Allowance { return s.allowance(2 * breath) }, s.lock.Connections()...)
	if err != nil {
		s.finish(events.Event{}) // without success
		return 0, err
	}
	s.group = group
	for _, sig := range s.pending {
		_ = group.Signal(sig)
	}
	s.supervise()
	_ = group.Close() // it kills nothing, because the group is empty: it waits for the goroutines of the group
	code, err := s.result(group.Status())
	exit := group.Status().ExitCode()
	success := err == nil && code == 0
	s.finish(events.Event{ExitCode: &exit, Success: success})
	if success {
		s.storeSuccess(began)
	}
	return code, err
}

// acquireOrSignal acquires the lock, unless a signal comes that would end the command.
func (s *session) acquireOrSignal(ctx context.Context) error {
	results := make(chan error, 1)
	go func() { results <- s.acquireUnlessDone(ctx) }()
	s.Console.BeginWait(Acquiring(s.Places()))
	defer s.Console.EndWait()
	for {
		select {
		case sig := <-s.signals:
			if !Ends(sig) {
				s.pending = append(s.pending, sig)
				continue
			}
			s.cancel(Signalled(sig))
			s.holder.passed.Add(s.Console.Interrupted) // it can block
			if err := <-results; err == nil {
				s.release()
			}
			return Signalled(sig)
		case err := <-results:
			return err
		}
	}
}

// Ends reports whether a signal asks a command to end.
func Ends(sig os.Signal) bool {
	return slices.Contains([]os.Signal{os.Interrupt, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT}, sig)
}

// prepare prepares the command and its guard. The guard stops or kills the command at the lock's deadline, even if
// this process is stopped.
func (s *session) prepare() (*procgroup.Prepared, error) {
	return procgroup.Prepare(procgroup.Command{
		Args: s.Args, Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr,
		Expiry:         s.expiry(),
		Aftermath:      s.Aftermath,
		BeforeContinue: s.mayContinue,
		Waiting: func(n int) {
			s.Console.Say("the command has ended, but %d of its processes still run: the lock stays held until they end", n)
		},
		Trouble:     func(err error) { s.Console.Say("warning: %v", err) },
		Interrupted: s.interruptedGroup,
		Suspended:   s.suspended,
		Continued:   s.continuedByOther,
		RunsOn:      s.runsOn,
	})
}

// beat is the interval at which a command under an outer lock gets a new allowance.
const beat = breath / 5

// supervise passes signals on to the command, and handles losses of the lock, until the end of the command's group.
func (s *session) supervise() {
	lost := s.lock.Context().Done()
	changed := make(chan struct{}, 1)
	s.lock.Notify(changed)
	watch := clock.NewWatch(clock.System{})
	defer watch.Stop()
	for terminated := false; ; {
		s.allow()
		wait := time.Hour
		if s.inner {
			wait = beat
		}
		terminates := s.OnLost == "term" && !terminated
		if terminates {
			wait = min(wait, max(s.left()-s.notice(), beat))
		}
		select {
		case <-s.group.Done():
			return
		case sig := <-s.signals:
			_ = s.group.Signal(sig)
		case <-changed:
		case <-watch.After(wait):
			if terminates && s.left() <= s.notice() {
				terminated = true
				s.terminate()
			}
		case <-lost:
			lost = s.onLost()
		}
	}
}

// interrupted ends this process by SIGINT or SIGQUIT if that signal has ended the command. It is called after the
// release.
func (s *session) interrupted() {
	if sig := s.group.Typed(); sig != 0 {
		Interrupt(sig, true)
	} else {
		Interrupt(s.group.Status().Signal, false) // the other processes of the pipeline got the signal, too
	}
}
