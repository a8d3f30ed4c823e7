package session

import (
	"context"
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"

	"github.com/repolock/repolock/internal/lease"
	"github.com/repolock/repolock/internal/procgroup"
	"github.com/repolock/repolock/internal/text"
	"github.com/repolock/repolock/replock"
)

// notice is how long before the loss of its lock the command is sent TERM: late, because
// the lock is refreshed until its deadline, and early enough to clean up.
func (s *session) notice() time.Duration { return min(s.TTL/12, 30*time.Second) }

// terminate sends TERM ahead of a possible loss of the lock.
func (s *session) terminate() {
	lock := s.lock
	s.lost = &replock.LostError{Mode: mode(lock), Key: lock.About().Key, Reason: "it could not be refreshed in time"}
	s.Console.Say("the lock can't be refreshed: the command is sent TERM, and killed when the lock is lost")
	_ = s.group.Signal(syscall.SIGTERM)
}

// onLost does what --on-lost says. It returns the channel that closes with the next loss,
// or nil unless the lock was resumed.
func (s *session) onLost() <-chan struct{} {
	lock := s.lock
	loss := lock.Lost()
	switch {
	case s.OnLost == "warn":
		s.lost = loss.Err
		s.sayLost(loss.Err, "the command runs on without it (--on-lost warn)")
		return nil
	case s.OnLost == "pause" && !loss.Definite && s.pause():
		s.notePause(lock)
		s.sayLost(loss.Err, "the command is stopped; trying for "+text.Duration(s.ResumeFor)+" to resume the lock")
		err := s.resume()
		if err == nil {
			return s.lock.Context().Done()
		}
		s.Console.Say("the lock could not be resumed: %s", Words(err, ""))
		if last := s.lock.Lost(); last != nil {
			loss = last // of another of several locks
		}
	}
	s.lost, s.killed = loss.Err, true
	_ = s.group.Kill()
	return nil
}

// sayLost shows a loss and what follows, with the key last.
func (s *session) sayLost(loss error, then string) {
	s.Console.Say("%s", Words(loss, "; "+then))
}

// pause stops the command, as far as possible. Processes that can't be stopped are in
// runsOn, and need the lock all the more.
func (s *session) pause() bool {
	err := s.group.Pause()
	return err == nil || errors.Is(err, os.ErrPermission)
}

// resume tries to get the lock back, with the command stopped, and continues the command.
// It resumes a lock again that is lost before the command goes on, all within ResumeFor.
func (s *session) resume() error {
	ctx, cancel := context.WithTimeout(context.Background(), s.ResumeFor)
	defer cancel()
	s.Console.BeginWait("the command is stopped; resuming the lock")
	defer s.Console.EndWait()
	for {
		err := s.regain(ctx, cancel)
		if err != nil {
			return err
		}
		lock := s.lock
		s.catchUp() // the record that the command goes on comes after that of the resume
		for err = s.proceed(lock); errors.Is(err, procgroup.ErrExpired) && leased(lock); err = s.proceed(lock) {
			if ctx.Err() != nil {
				return err
			}
		}
		if !errors.Is(err, procgroup.ErrExpired) {
			return err
		}
		_ = s.pause()
		<-lock.Context().Done() // at once: its deadline is over
		loss := lock.Lost()
		if loss == nil {
			return err
		}
		if loss.Definite {
			return loss.Err
		}
		s.notePause(lock)
		s.Console.Say("the lock was resumed, and lost before the command could go on; trying again: %s", Words(loss.Err, ""))
	}
}

func (s *session) regain(ctx context.Context, cancel func()) error {
	resumed := make(chan error, 1)
	go func() { resumed <- s.lock.Resume(ctx) }()
	// abandon leaves a lock that was resumed after all to be released.
	abandon := func() {
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

// Resumed is for tests, which stop this process there: the lock is held, and the command
// doesn't go on yet.
var Resumed = func() {}

// proceed continues the command under the lock that was resumed.
func (s *session) proceed(lock *lease.Set) error {
	Resumed()
	s.allowed = s.allowance(lock, 5*breath) // Unpause can take a while
	s.group.Allow(s.allowed)
	err := s.group.Unpause()
	if errors.Is(err, os.ErrProcessDone) { // it ended as soon as it went on, under the lock
		err = nil
	}
	if stillStopped := errors.Is(err, procgroup.ErrUnguarded) || errors.Is(err, procgroup.ErrParted); err != nil && !stillStopped {
		return err
	}
	if s.denied.Swap(false) {
		_ = s.group.Signal(Continue)
	}
	if err != nil { // the group goes on when that is over
		s.Console.Say("the lock was resumed; the command is still stopped: %s", text.Error(err))
		return nil
	}
	s.Console.Say("the lock was resumed, and the command continued")
	return nil
}

// result returns the exit code of the command. A lost lock outranks exit code 0, and the
// death of the command by that loss.
func (s *session) result(status procgroup.Status) (int, error) {
	if s.lost == nil {
		s.lost = s.lossUnseen()
	}
	if s.lost != nil && (s.killed || status.Signal != 0 && s.OnLost == "term" || status.ExitCode() == 0) {
		return 0, fmt.Errorf("%w; %s", s.lost, s.ended(status))
	}
	return status.ExitCode(), nil
}

// ended describes the end of the command after a loss.
func (s *session) ended(status procgroup.Status) string {
	if s.killed && status.Signal == syscall.SIGKILL {
		return "repolock killed the command"
	}
	return "the command: " + status.String()
}

// lossUnseen returns a loss that has had no effect: the lock was broken after the last
// look, or lost with --on-lost warn. If the store can't be reached, the lease still lasts,
// and no other holder can have the lock.
func (s *session) lossUnseen() error {
	lock := s.lock
	defer s.waitingFor("looking at the lock once more")()
	_ = lock.Check(context.Background())
	if lost := lock.Lost(); lost != nil && (lost.Definite || s.OnLost == "warn") {
		return lost.Err
	}
	return nil
}
