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
	"github.com/repolock/repolock/internal/lease"
	"github.com/repolock/repolock/internal/procgroup"
	"github.com/repolock/repolock/internal/procgroup/guard"
)

// Command is a command, and the lock that it runs under.
type Command struct {
	Request   Request
	Args      []string
	OnLost    string        // pause, term, kill or warn
	ResumeFor time.Duration // how long to try to resume a lost lock
	Survey    *Survey       // nil: none
	Aftermath []string      // of procgroup.Command
}

// session is one command under one lock.
type session struct {
	Command
	holder
	signals <-chan os.Signal
	pending []os.Signal // came before the command was started
	lock    *lease.Set  // set before the command starts
	group   *procgroup.Group
	allowed procgroup.Allowance // of the group
	inner   bool                // we run under another lock
	denied  atomic.Bool         // the shell continued us, and the lock was lost
	lost    error               // the final loss of the lock
	killed  bool                // by us, for that loss
	passed  os.Signal           // the last signal that we passed to the command
}

// Run acquires the lock, runs the command, and releases the lock. It returns the exit
// code of the command, or an error of NotAcquired if it could not acquire the lock. If the
// terminal has interrupted the command, Run interrupts this process.
func (c Command) Run() (int, error) {
	s := &session{Command: c, holder: holder{Request: c.Request, show: c.Request.Console.Event}}
	code, err := s.run()
	if err == nil {
		s.interrupted()
	}
	return code, err
}

// run prepares the command while it acquires the lock, but starts the command under the
// lock alone. It releases the lock after the last process of the command's group has ended.
func (s *session) run() (int, error) {
	ctx, cancel := context.WithCancelCause(context.Background())
	defer cancel(nil)
	signals, stop := procgroup.Signals()
	defer stop()
	s.signals, s.cancel = signals, cancel
	s.inner = len(heldOuterLocks()) > 0
	// Ignore SIGPIPE: a closed stderr must not kill us while we hold the lock.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)

	guard.ReserveThreads()
	if err := s.open(); err != nil {
		return 0, err
	}
	prepared, err := s.prepare()
	if err != nil {
		s.notAcquired(err)
		return 0, err
	}
	s.Survey.Start(ctx)
	lock, err := s.acquireOrSignal(ctx)
	if err != nil {
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
	defer s.release(lock)
	group, err := prepared.Start(s.holder.environ(lock), s.allowance(lock, breath), lock.Connections()...)
	if err != nil {
		s.finish(s.lock, events.Event{}) // without success
		return 0, err
	}
	s.group = group
	s.allow()
	for _, sig := range s.pending {
		_ = group.Signal(sig)
	}
	s.supervise()
	_ = group.Close()
	code, err := s.result(group.Status())
	exit := group.Status().ExitCode()
	s.finish(s.lock, events.Event{ExitCode: &exit, Success: err == nil && code == 0})
	return code, err
}

type result struct {
	lock *lease.Set
	err  error
}

// acquireOrSignal acquires the lock, unless a signal comes that would end the command.
func (s *session) acquireOrSignal(ctx context.Context) (*lease.Set, error) {
	results := make(chan result, 1)
	go func() {
		lock, err := s.acquire(ctx)
		results <- result{lock, err}
	}()
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
			if r := <-results; r.lock != nil {
				s.release(r.lock)
			}
			return nil, Signalled(sig)
		case r := <-results:
			if r.err == nil {
				s.lock = r.lock
			}
			return r.lock, r.err
		}
	}
}

// Ends reports whether a signal means that a command should end.
func Ends(sig os.Signal) bool {
	return slices.Contains([]os.Signal{os.Interrupt, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT}, sig)
}

// prepare prepares the command. Its guard stops or kills it at the lock's deadline even if
// this process is stopped.
func (s *session) prepare() (*procgroup.Prepared, error) {
	return procgroup.Prepare(procgroup.Command{
		Args: s.Args, Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr,
		Expiry:         s.expiry(),
		Aftermath:      s.Aftermath,
		BeforeContinue: s.mayContinue,
		Waiting: func(n int) {
			s.Console.Say("the command has ended; the lock is held on for %d of its processes that still run", n)
		},
		Trouble:     func(err error) { s.Console.Say("warning: %v", err) },
		Interrupted: s.interruptedGroup,
		Suspended:   s.suspended,
		RunsOn:      s.runsOn,
	})
}

// beat is the interval at which the guard gets the lock's deadline and last look.
const beat = 200 * time.Millisecond

// supervise passes signals on to the command, and handles the loss of the lock, until the
// command's group has ended.
func (s *session) supervise() {
	lost := s.lock.Context().Done()
	ticker := time.NewTicker(beat)
	defer ticker.Stop()
	terminated := false
	for {
		select {
		case <-s.group.Done():
			return
		case sig := <-s.signals:
			s.passed = sig
			_ = s.group.Signal(sig)
		case <-ticker.C:
			s.allow()
			left := s.lock.Deadline() - clock.System{}.Elapsed()
			if s.OnLost == "term" && !terminated && left < s.notice() {
				terminated = true
				s.terminate()
			}
		case <-lost:
			lost = s.onLost()
		}
	}
}

// interrupted ends us, and the processes that we run with, as the command ended, if it
// ended by Ctrl-C. The lock is released by then.
func (s *session) interrupted() {
	if sig := s.group.Typed(); sig != 0 {
		Interrupt(sig, true)
	} else if sig := s.group.Status().Signal; sig == s.passed {
		Interrupt(sig, false) // as all processes of a pipeline got it
	}
}
