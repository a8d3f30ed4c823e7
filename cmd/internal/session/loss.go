package session

import (
	"context"
	"errors"
	"os"
	"syscall"
	"time"

	"github.com/repolock/repolock/internal/clock"
	"github.com/repolock/repolock/internal/fault"
	"github.com/repolock/repolock/internal/procgroup"
	"github.com/repolock/repolock/internal/text"
	"github.com/repolock/repolock/replock"
)

// notice is the time from TERM to the deadline: short, because a refresh can still succeed until the deadline, and
// long enough to clean up.
func (s *session) notice() time.Duration { return min(s.TTL/12, 30*time.Second) }

// terminate sends TERM ahead of a possible loss of the lock.
func (s *session) terminate() {
	s.lost = &replock.LostError{Mode: s.mode(), Key: s.lock.About().Key, Reason: "it could not be refreshed in time"}
	s.Console.Say("the lock can't be refreshed: the command is sent TERM, and killed when the lock is lost")
	_ = s.group.Signal(syscall.SIGTERM)
}

// onLost obeys --on-lost. If it resumes the lock, it returns the channel that closes with the next loss, else nil.
func (s *session) onLost() <-chan struct{} {
	loss := s.lock.Lost()
	switch {
	case s.OnLost == "warn":
		s.lost = loss.Err
		s.sayLost(loss.Err, "the command runs on without it (--on-lost warn)")
		return nil
	case s.OnLost == "pause" && !loss.Definite && s.pause():
		s.notePause()
		s.sayLost(loss.Err, s.meanwhile(loss.Err))
		err := s.resume()
		if err == nil {
			return s.lock.Context().Done()
		}
		s.Console.Say("the lock could not be resumed: %s", Words(err, ""))
		if last := s.lock.Lost(); last != nil {
			loss = last // perhaps of another lock of the set
		}
	}
	s.lost, s.killed = loss.Err, true
	_ = s.group.Kill()
	return nil
}

// meanwhile returns the state of the stopped command, the time at which repolock will kill it, and advice about
// the cause.
func (s *session) meanwhile(loss error) string {
	advice := "{repolock doctor} examines the store"
	if lost, ok := errors.AsType[*replock.LostError](loss); ok && fault.Of(lost.Err) != fault.Unknown && fault.Advice(lost.Err) != fault.SeeDoctor {
		advice = fault.Advice(lost.Err)
	}
	if s.Located != nil {
		advice = s.Located(advice)
	} else {
		advice = fault.Expand(advice, nil)
	}
	end := clock.System{}.Now().Add(s.ResumeFor).UTC()
	return "the command is stopped; repolock tries to resume the lock until " + end.Format(time.RFC3339) + ", and then kills the command; " + advice
}

// sayLost shows a loss and its consequence, after the failures of refreshes that have caused it.
func (s *session) sayLost(loss error, then string) {
	s.flush()
	s.Console.Say("%s", Words(loss, "; "+then))
}

// pause stops the command, and reports whether to resume the lock. If processes can't be stopped, it returns true as
// well, because they need the lock all the more. runsOn reports them.
func (s *session) pause() bool {
	err := s.group.Pause()
	return err == nil || errors.Is(err, os.ErrPermission)
}

// resume resumes the lock while the command is stopped, and continues the command. If the lock is lost before the
// command goes on, it tries again, until ResumeFor is over.
func (s *session) resume() error {
	ctx, cancel := context.WithTimeout(context.Background(), s.ResumeFor)
	defer cancel()
	s.Console.BeginWait("the command is stopped; resuming the lock", "")
	defer s.Console.EndWait()
	for {
		err := s.regain(ctx, cancel)
		if err != nil {
			return err
		}
		s.flush() // the record of the resume comes before the command goes on
		for err = s.proceed(); errors.Is(err, procgroup.ErrExpired) && s.leased(); err = s.proceed() {
			if ctx.Err() != nil {
				return err
			}
		}
		if !errors.Is(err, procgroup.ErrExpired) {
			return err
		}
		_ = s.pause()
		<-s.lock.Context().Done() // at once, because the deadline is over; the release comes later
		loss := s.lock.Lost()
		if loss.Definite {
			return loss.Err
		}
		s.notePause()
		s.Console.Say("the lock was resumed, and lost before the command could go on; trying again: %s", Words(loss.Err, ""))
	}
}

// regain resumes the lock, unless a signal or the end of the command comes first.
func (s *session) regain(ctx context.Context, cancel func()) error {
	resumed := make(chan error, 1)
	go func() { resumed <- s.lock.Resume(ctx) }()
	abandon := func() { // a lock that was just resumed is released at the end
		cancel()
		<-resumed
	}
	for {
		select {
		case err := <-resumed:
			return err
		case sig := <-s.signals:
			if !Ends(sig) {
				_ = s.group.Signal(sig)
				continue
			}
			abandon() // the stopped command can't get the signal
			return Signalled(sig)
		case <-s.group.Done():
			abandon()
			return errors.New("the command was killed")
		}
	}
}

// resumed is a hook for tests. It runs when the lock is resumed, and the command still stopped.
var resumed = func() {}

// proceed continues the command under the resumed lock.
func (s *session) proceed() error {
	resumed()
	s.allowed = s.allowance(5 * breath) // Unpause can take a while
	s.group.Allow(s.allowed)
	err := s.group.Unpause()
	if errors.Is(err, os.ErrProcessDone) { // the command went on, and has already ended
		err = nil
	}
	if stillStopped := errors.Is(err, procgroup.ErrUnguarded) || errors.Is(err, procgroup.ErrClockStepped); err != nil && !stillStopped {
		return err
	}
	if s.denied.Swap(false) {
		_ = s.group.Signal(Continue)
	}
	if err != nil { // the group continues the command by itself later
		s.Console.Say("the lock was resumed; the command is still stopped: %s", text.Error(err))
		return nil
	}
	s.Console.Say("the lock was resumed, and the command continued")
	return nil
}

// result returns the exit code of the command. The loss of the lock wins over exit code 0, and over a death that
// the loss caused.
func (s *session) result(status procgroup.Status) (int, error) {
	if s.lost == nil {
		s.lost = s.lossUnseen()
	}
	if s.lost != nil && (s.killed || status.Signal != 0 && s.OnLost == "term" || status.ExitCode() == 0) {
		end := "the command: " + status.String()
		if status.ExitCode() == 0 {
			end = "the command has exited with 0"
		}
		if s.killed && status.Signal == syscall.SIGKILL {
			end = "repolock killed the command"
		}
		return 0, fault.Errorf("%w; %s", s.lost, end)
	}
	return status.ExitCode(), nil
}

// lossUnseen returns a loss that had no effect on the command: the lock was broken after the last look, or lost
// with --on-lost warn. A silent store is no loss: the lease lasts, and no other holder can have the lock.
func (s *session) lossUnseen() error {
	defer s.waitingFor("looking at the lock once more")()
	_ = s.lock.Check(context.Background())
	if lost := s.lock.Lost(); lost != nil && (lost.Definite || s.OnLost == "warn") {
		return lost.Err
	}
	return nil
}
