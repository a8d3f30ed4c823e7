package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strings"
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
	allowed time.Duration // the deadline that the group was told
	inner   bool          // another's lock
	denied  atomic.Bool   // the shell continued us, and the lock was gone
	lost    error         // the loss that there is no coming back from
	killed  bool          // by us, for that loss
	passed  os.Signal     // the last that the command got from us
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
	s.signals, s.gaveUp, s.cancel = signals, make(chan struct{}, 1), cancel
	s.inner = len(outer()) > 0
	// That nobody reads what we say is nothing to die of with the lock held.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)

	if err := s.open(); err != nil {
		return 0, err
	}
	prepared, err := s.prepare()
	if err != nil {
		return 0, err
	}
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
		return 0, notAcquired{err, s.seen.Load()}
	}
	defer s.release()
	group, err := prepared.Start(s.environ(lock), s.until(lock, breath))
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
		Trouble: func(err error) { s.report.say("warning: %v", err) },
	})
}

// environ tells the command what it runs under. It holds no credentials.
func (s *session) environ(lock *replock.Lock) []string {
	// A repolock around this one has said the same of its own lock.
	env := slices.DeleteFunc(os.Environ(), func(v string) bool {
		name, _, _ := strings.Cut(v, "=")
		return slices.Contains([]string{"REPOLOCK_HELD", "REPOLOCK_REPO", "REPOLOCK_MODE", "REPOLOCK_ID", "REPOLOCK_FENCE", outerVariable, nameVariable}, name)
	})
	fence, _ := lock.Fence()
	return append(env, s.under(lock.ID(), lock.Mode().String(), fence, "")...)
}

// allow lets the command run until the lock's deadline.
func (s *session) allow() {
	if until := s.until(s.lock.Load(), breath); until != s.allowed {
		s.allowed = until
		s.group.Allow(until)
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
	held := lock.Lost() == nil && clock.System{}.Elapsed() < lock.Deadline()
	s.denied.Store(!held && s.OnLost != "warn")
	if s.denied.Load() {
		return false
	}
	if s.inner {
		g.Allow(s.until(lock, 2*breath)) // there was no beat while we were stopped
	}
	return true
}

// beat is how often the lock's deadline is looked at and passed on to the guard.
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
		case <-s.gaveUp:
			terminate("the lock can't be refreshed")
		case <-ticker.C:
			s.allow()
			if left := s.lock.Load().Deadline() - (clock.System{}).Elapsed(); left < s.TTL/12 {
				terminate("the lock wasn't refreshed yet")
			}
		case <-lost:
			lost = s.onLost()
		}
	}
}

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
	case s.OnLost == "pause" && !loss.Definite && group.Pause() == nil:
		lock, now := s.lock.Load(), clock.System{}.Now()
		s.locker.Later(func() { s.audit.paused(lock, now) })
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

// resume tries to get the lock back, with the command stopped, and continues it.
func (s *session) resume() error {
	group := s.group
	ctx, cancel := context.WithTimeout(context.Background(), s.ResumeFor)
	defer cancel()
	answers := make(chan answer, 1)
	go func() {
		lock, err := s.lock.Load().Resume(ctx)
		answers <- answer{lock, err}
	}()
	for {
		select {
		case a := <-answers:
			if a.err != nil {
				return a.err
			}
			return s.proceed(a.lock)
		case sig := <-s.signals:
			if !ends(sig) {
				_ = group.Signal(sig)
				continue
			}
			// It can't get the signal: it would have to run for that.
			cancel()
			s.abandon(<-answers)
			return signalled{sig.(syscall.Signal)}
		case <-group.Done():
			cancel()
			s.abandon(<-answers)
			return errors.New("the command was killed")
		}
	}
}

// proceed continues the command under the lock that was resumed.
func (s *session) proceed(lock *replock.Lock) error {
	group := s.group
	s.lock.Store(lock)
	s.allowed = s.until(lock, 5*breath) // to unpause may take a while
	group.Allow(s.allowed)
	if err := group.Unpause(); err != nil {
		return err
	}
	if s.denied.Swap(false) {
		_ = group.Signal(sigcont)
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
// without anybody having been told: the last refresh may be half a ttl ago. If
// the store can't be reached now, nobody can have got in: the lease still lasts.
func (s *session) brokenUnseen() error {
	lock := s.lock.Load()
	_ = lock.Confirm(context.Background())
	if lost := lock.Lost(); lost != nil && (lost.Definite || s.OnLost == "warn") {
		return lost
	}
	return nil
}
