package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/repolock/repolock/internal/child"
	"github.com/repolock/repolock/internal/clock"
	"github.com/repolock/repolock/replock"
)

// session is one command under one lock.
type session struct {
	lockFlags
	*taking
	args []string

	signals <-chan os.Signal
	pending []os.Signal // that came before there was a command to get them
	lock    atomic.Pointer[replock.Lock]
	waiting waiting
	group   *child.Group
	allowed child.Allowance // what the group was told last
	inner   bool            // another's lock
	denied  atomic.Bool     // the shell continued us, and the lock was gone
	around  *around         // nil: nothing to say
	lost    error           // the loss that there is no coming back from
	killed  bool            // by us, for that loss
	passed  os.Signal       // the last that the command got from us
}

// release releases the lock. What is left if that fails expires; the event tells
// it.
func (s *session) release() {
	_ = s.lock.Load().Release(context.Background())
	s.flush()
}

// answer is what an acquire or a resume gave.
type answer struct {
	lock *replock.Lock
	err  error
}

// run acquires the lock, runs the command, and releases the lock. The command is
// prepared meanwhile but started after the lock is held, and the lock is released
// after the last process of the command's group has ended.
func (s *session) run() (int, error) {
	ctx, cancel := context.WithCancelCause(context.Background())
	defer cancel(nil)
	signals, stop := child.Signals()
	defer stop()
	s.signals, s.cancel = signals, cancel
	s.inner = len(outer()) > 0
	// That nobody reads what we say is nothing to die of with the lock held.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)

	child.ReserveThreads()
	if err := s.open(); err != nil {
		return 0, err
	}
	prepared, err := s.prepare()
	if err != nil {
		return 0, err
	}
	s.around = lookAround(ctx, s.report, s.global)
	lock, err := s.acquire(ctx)
	if err != nil {
		prepared.Close()
		select {
		case sig := <-s.signals:
			if ends(sig) {
				return 0, signalled{sig.(syscall.Signal)}
			}
		default:
		}
		return 0, notAcquired{err, s.store != nil && s.store.heard() || s.around.reached()}
	}
	defer s.around.tell()()
	defer s.release()
	group, err := prepared.Start(s.environ(lock), s.allowance(lock, breath))
	if err != nil {
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
	s.metrics.exited(group.Status().ExitCode())
	s.audit.ended(group.Status().ExitCode(), err == nil && code == 0)
	return code, err
}

// acquire takes the lock. A signal that would end the command ends that.
func (s *session) acquire(ctx context.Context) (*replock.Lock, error) {
	s.waiting.r, s.show = s.report, s.waiting.event
	answers := make(chan answer, 1)
	go func() {
		lock, err := s.take(ctx)
		answers <- answer{lock, err}
	}()
	defer s.waiting.end()
	for {
		select {
		case sig := <-s.signals:
			if !ends(sig) {
				s.pending = append(s.pending, sig)
				continue
			}
			s.cancel(signalled{sig.(syscall.Signal)})
			if a := <-answers; a.lock != nil {
				_ = a.lock.Release(context.Background())
				s.flush()
			}
			return nil, signalled{sig.(syscall.Signal)}
		case a := <-answers:
			if a.err == nil {
				s.lock.Store(a.lock)
			}
			return a.lock, a.err
		}
	}
}

// ends reports whether a signal means that a command should end.
func ends(sig os.Signal) bool {
	switch sig {
	case os.Interrupt, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT:
		return true
	default:
		return false
	}
}

// prepare gets the command ready. Its guard stops or kills it at the lock's deadline
// even if this process is stopped.
func (s *session) prepare() (*child.Prepared, error) {
	return child.Prepare(child.Command{
		Args: s.args, Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr,
		Expiry:         s.expiry(),
		BeforeContinue: s.mayContinue,
		Waiting: func(n int) {
			s.report.say("the command has ended; the lock is held on for %d of its processes that still run", n)
		},
		Trouble:     func(err error) { s.report.say("warning: %v", err) },
		Interrupted: s.stopped,
		RunsOn:      s.runsOn,
	})
}

// environ tells the command what it runs under. It holds no credentials.
func (s *session) environ(lock *replock.Lock) []string {
	// A repolock around this one has said the same of its own lock.
	env := withoutVariables(os.Environ(), append(slices.Clone(claims), "REPOLOCK_REPO", outerVariable, nameVariable))
	fence, _ := lock.Fence()
	return append(env, s.under(lock.ID(), lock.Mode().String(), fence, "")...)
}

// allow lets the command run until the lock's deadline.
func (s *session) allow() {
	if a := s.allowance(s.lock.Load(), breath); a != s.allowed {
		s.allowed = a
		s.group.Allow(a)
	}
}

// breath is how long the command of a repolock under another's lock runs on when that
// one has stopped us. It is less than what is left until others may be let in.
const breath = time.Second

// until is how long the command may run. Who runs us under a lock of their own, and loses
// it, stops us alone: our command is in a group of its own. So it has leave for a moment
// at a time, and our guard stops it soon after we are stopped, whatever is to become of it
// when it is our lock that is lost.
func (s *session) until(lock *replock.Lock, moment time.Duration) time.Duration {
	switch end := (clock.System{}).Elapsed() + moment; {
	case !s.inner:
		return lock.Deadline()
	case s.OnLost == "warn":
		return end
	default:
		return min(lock.Deadline(), end)
	}
}

// expiry is what the guard does when that is over.
func (s *session) expiry() child.Expiry {
	if s.inner {
		return child.Stop
	}
	return map[string]child.Expiry{"pause": child.Stop, "term": child.Kill, "kill": child.Kill, "warn": child.Nothing}[s.OnLost]
}

// mayContinue is asked when the shell continues us (fg, bg).
func (s *session) mayContinue(g *child.Group) bool {
	lock := s.lock.Load()
	s.denied.Store(!held(lock) && s.OnLost != "warn")
	if s.denied.Load() {
		return false
	}
	if s.inner {
		g.Allow(s.allowance(lock, 2*breath)) // there was no beat while we were stopped
	}
	return true
}

// beat is how often the lock's deadline, and when it was last seen, is passed on to the
// guard.
const beat = 200 * time.Millisecond

// supervise passes signals on to the command, and deals with the loss of the
// lock, until the command's group has ended.
func (s *session) supervise() {
	group := s.group
	lost := s.lock.Load().Context().Done()
	ticker := time.NewTicker(beat)
	defer ticker.Stop()
	terminated := false
	terminate := func(why string) {
		if s.OnLost == "term" && !terminated {
			terminated = true
			s.terminate(why)
		}
	}
	for {
		select {
		case <-group.Done():
			return
		case sig := <-s.signals:
			s.passed = sig
			_ = group.Signal(sig)
		case <-ticker.C:
			s.allow()
			if left := s.lock.Load().Deadline() - (clock.System{}).Elapsed(); left < s.notice() {
				terminate("the lock can't be refreshed")
			}
		case <-lost:
			lost = s.onLost()
		}
	}
}

// maxNotice is how long before the loss of a lock its command is sent TERM at most.
const maxNotice = 30 * time.Second

// notice is how long before the loss of its lock the command is sent TERM: late, because
// the lock is refreshed until its deadline, and early enough to clean up.
func (s *session) notice() time.Duration { return min(s.TTL/12, maxNotice) }

// terminate ends the command before the lock is lost, which it may be or not.
func (s *session) terminate(why string) {
	lock := s.lock.Load()
	s.lost = &replock.LostError{Mode: lock.Mode(), Key: lock.Key(), Reason: "it could not be refreshed in time"}
	s.report.say("%s: the command is sent TERM, and killed when the lock is lost", why)
	_ = s.group.Signal(syscall.SIGTERM)
}

// onLost does what --on-lost says. It returns the channel that tells of the next
// loss: none, unless the lock was resumed.
func (s *session) onLost() <-chan struct{} {
	group, loss := s.group, s.lock.Load().Lost()
	switch {
	case s.OnLost == "warn":
		s.lost = loss
		s.report.say("%s; the command runs on without it (--on-lost warn)", oneLine(loss))
		return nil
	case s.OnLost == "pause" && !loss.Definite && s.pause():
		s.stoppedFor(s.lock.Load())
		s.report.say("%s; the command is stopped; trying for %v to resume the lock", oneLine(loss), s.ResumeFor)
		err := s.resume()
		if err == nil {
			return s.lock.Load().Context().Done()
		}
		s.report.say("the lock could not be resumed: %s", oneLine(err))
	}
	s.lost, s.killed = loss, true
	_ = group.Kill()
	return nil
}

// stoppedFor has it logged that the command is stopped for the loss of this lock.
func (s *session) stoppedFor(lock *replock.Lock) {
	now := clock.System{}.Now()
	s.locker.Later(func() { s.audit.paused(lock, now) })
}

// pause stops the command, as far as that can be done. What runs on is told by runsOn, and
// needs the lock the more.
func (s *session) pause() bool {
	err := s.group.Pause()
	return err == nil || errors.Is(err, os.ErrPermission)
}

// resume tries to get the lock back, with the command stopped, and continues it. A lock
// that is lost again before the command goes on is resumed again, all within ResumeFor.
func (s *session) resume() error {
	ctx, cancel := context.WithTimeout(context.Background(), s.ResumeFor)
	defer cancel()
	for {
		lock, err := s.regain(ctx, cancel)
		if err != nil {
			return err
		}
		s.lock.Store(lock)
		for err = s.proceed(lock); errors.Is(err, child.ErrExpired) && held(lock); err = s.proceed(lock) {
			if ctx.Err() != nil {
				return err
			}
		}
		if !errors.Is(err, child.ErrExpired) {
			return err
		}
		_ = s.pause()
		<-lock.Context().Done() // at once: its deadline is over
		loss := lock.Lost()
		if loss == nil {
			return err
		}
		if loss.Definite {
			return loss
		}
		s.stoppedFor(lock)
		s.report.say("the lock was resumed, and lost before the command could go on: %s; trying again", oneLine(loss))
	}
}

// held reports whether the lock's lease lasts.
func held(lock *replock.Lock) bool {
	return lock.Lost() == nil && clock.System{}.Elapsed() < lock.Deadline()
}

// regain gets the lock back.
func (s *session) regain(ctx context.Context, cancel func()) (*replock.Lock, error) {
	group := s.group
	answers := make(chan answer, 1)
	go func() {
		lock, err := s.lock.Load().Resume(ctx)
		answers <- answer{lock, err}
	}()
	for {
		select {
		case a := <-answers:
			return a.lock, a.err
		case sig := <-s.signals:
			if !ends(sig) {
				_ = group.Signal(sig)
				continue
			}
			// It can't get the signal: it would have to run for that.
			cancel()
			s.abandon(<-answers)
			return nil, signalled{sig.(syscall.Signal)}
		case <-group.Done():
			cancel()
			s.abandon(<-answers)
			return nil, errors.New("the command was killed")
		}
	}
}

// resumed is for tests, which stop us there: the lock is held, and the command doesn't go
// on yet.
var resumed = func() {}

// proceed continues the command under the lock that was resumed.
func (s *session) proceed(lock *replock.Lock) error {
	resumed()
	group := s.group
	s.allowed = s.allowance(lock, 5*breath) // to unpause may take a while
	group.Allow(s.allowed)
	err := group.Unpause()
	if stillStopped := errors.Is(err, child.ErrUnguarded) || errors.Is(err, child.ErrParted); err != nil && !stillStopped {
		return err
	}
	if s.denied.Swap(false) {
		_ = group.Signal(sigcont)
	}
	if err != nil { // the group is told to go on when that is over
		s.report.say("the lock was resumed; the command is still stopped: %s", oneLine(err))
		return nil
	}
	s.report.say("the lock was resumed, and the command continued")
	return nil
}

// abandon gives back what a resume has got after all.
func (s *session) abandon(a answer) {
	if a.lock != nil {
		s.lock.Store(a.lock)
	}
}

// result is the exit code of the command; a lost lock outranks its 0, and the
// death that the loss brought it.
func (s *session) result(status child.Status) (int, error) {
	if s.lost == nil {
		s.lost = s.brokenUnseen()
	}
	if s.lost != nil && (s.killed || status.Signal != 0 && s.OnLost == "term" || status.ExitCode() == 0) {
		return 0, fmt.Errorf("%w (the command: %s)", s.lost, status)
	}
	return status.ExitCode(), nil
}

// interrupted has us, and those whom we run with, end as the command did, if it did by
// Ctrl-C. The lock is released by then.
func (s *session) interrupted() {
	if sig := s.group.Typed(); sig != 0 {
		interrupt(sig, true)
	} else if sig := s.group.Status().Signal; sig == s.passed {
		interrupt(sig, false) // as all in a pipeline got it
	}
}

// brokenUnseen tells whether the lock was broken, or lost with --on-lost warn,
// without anybody having been told: the last look may be 10 s ago. If
// the store can't be reached now, nobody can have got in: the lease still lasts.
func (s *session) brokenUnseen() error {
	lock := s.lock.Load()
	_ = lock.Confirm(context.Background())
	if lost := lock.Lost(); lost != nil && (lost.Definite || s.OnLost == "warn") {
		return lost
	}
	return nil
}
