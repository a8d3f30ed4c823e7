//go:build unix

package session

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/creack/pty"

	"github.com/repolock/repolock/cmd/internal/events"
	"github.com/repolock/repolock/internal/clock"
	"github.com/repolock/repolock/internal/daemon"
	"github.com/repolock/repolock/internal/fault"
	"github.com/repolock/repolock/internal/identity"
	"github.com/repolock/repolock/internal/lease"
	"github.com/repolock/repolock/internal/procgroup"
	"github.com/repolock/repolock/internal/test/assert"
	"github.com/repolock/repolock/internal/test/states"
	"github.com/repolock/repolock/replock"
	"github.com/repolock/repolock/store"
	"github.com/repolock/repolock/store/memory"
)

// stage is a command under a lock, with a record of their events.
type stage struct {
	Command
	locker      fakeLocker
	first, next *fakeLock // next is the first one resumed

	mu           sync.Mutex
	events, said []string
	pid          int               // of the command, which has written it into begun
	heard        func(what string) // gets each message
}

// say records an action or a message of repolock.
func (s *stage) say(what string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.said = append(s.said, what)
	s.heard(what)
}

// goOn lets a command read the FIFO go after a message that contains this text.
func (s *stage) goOn(after string) {
	fifo, err := filepath.Abs("go") // the test can be over, and its directory left, when the goroutine runs
	s.heard = func(what string) {
		if strings.Contains(what, after) {
			go func() {
				f, oerr := os.OpenFile(fifo, os.O_WRONLY, 0)
				if err == nil && oerr == nil {
					_, _ = f.WriteString("on\n")
					f.Close()
				}
			}()
		}
	}
}

func (s *stage) Handle(e events.Event) {
	s.events = append(s.events, strings.TrimSpace(string(e.Kind)+" "+e.ID))
}
func (s *stage) Say(format string, args ...any) { s.say(fmt.Sprintf(format, args...)) }
func (s *stage) Alert(_, text string)           { s.say(text) }
func (s *stage) Event(e replock.Event) {
	if e.Kind == replock.EventRefreshFailed {
		s.say("a refresh has failed")
	}
}
func (s *stage) BeginWait(string, string) {}
func (s *stage) Interrupted()             {}
func (s *stage) EndWait()                 {}

// newStage is about a command of the shell, in a directory of its own. The command has begun when it
// writes into the FIFO begun, and reads the FIFO go.
func newStage(t *testing.T, onLost, command string) *stage {
	t.Helper()
	t.Chdir(t.TempDir())
	assert.OK(t, fault.Join(syscall.Mkfifo("begun", 0o600), syscall.Mkfifo("go", 0o600)))
	s := &stage{first: newLock("first"), next: newLock("next"), heard: func(string) {}}
	s.first.release, s.next.release = func() { s.say("release first") }, func() { s.say("release next") }
	s.first.resume = func() (*fakeLock, error) {
		s.say("resume")
		for begin := time.Now(); !states.Stopped(s.pid); time.Sleep(time.Millisecond) {
			if time.Since(begin) > 20*time.Second {
				t.Error("the command runs while its lock is resumed")
				break
			}
		}
		return s.next, nil
	}
	s.locker.acquire = func(context.Context) (*lease.Set, error) { return s.first.held(), nil }
	s.Command = Command{
		Request: Request{Place: Place{Repo: "/r"}, Locker: &s.locker, TTL: time.Hour, Console: s, Sinks: func() ([]events.Sink, error) { return []events.Sink{s}, nil }},
		Args:    []string{"sh", "-c", command}, OnLost: onLost, ResumeFor: time.Hour,
	}
	return s
}

// until returns a lock with a deadline, whose release is recorded.
func (s *stage) until(id string, deadline time.Duration, definite bool) *fakeLock {
	l := lockUntil(id, deadline, definite)
	l.release = func() { s.say("release " + id) }
	return l
}

// late makes a resume return a lock whose deadline is already over.
func (s *stage) late(definite bool, again func() (*fakeLock, error)) {
	resume := s.first.resume
	s.first.resume = func() (*fakeLock, error) {
		_, err := resume()
		s.next = s.until("next", clock.System{}.Elapsed(), definite)
		s.next.resume = again
		return s.next, err
	}
}

// run runs the command, and waits until all that happened is recorded.
func (s *stage) run() (int, error) {
	of := &session{Command: s.Command, holder: holder{Request: s.Request, show: s.Event}}
	code, err := of.run()
	of.holder.passed.Flush(context.Background())
	return code, err
}

// TestLoss: --on-lost decides what happens to a command whose lock is lost. A lock that is lost
// for good isn't resumed, and a stopped command goes on only under a resumed lock.
func TestLoss(t *testing.T) {
	const (
		waits   = "echo $$ > begun; read x < go; exit 3"
		forever = "echo $$ > begun; exec sleep 30"
		stopped = "shared lock lost: it is gone; the command is stopped; repolock tries to resume the lock until TIME, and then kills the command; " +
			"repolock doctor examines the store (key first)\n"
		without = "shared lock lost: it is gone; the command runs on without it (--on-lost warn) (key first)\n"
		killed  = "shared lock lost: it is gone (key first); repolock killed the command"
	)
	for _, c := range []struct {
		name, onLost, command string
		set, begun            func(*stage) // before all, and when the command has begun
		code                  int
		fails                 string // the error
		events, said          string
	}{
		{"held", "pause", "echo > begun; exit 3", nil, nil, 3, "", "work_ended first", "release first"},
		{"kill", "kill", forever, nil, func(s *stage) { s.first.lose(false) }, 0, killed, "work_ended first", "release first"},
		{"pause, for good", "pause", forever, nil, func(s *stage) { s.first.lose(true) }, 0, killed, "work_ended first", "release first"},
		{"pause, resumed", "pause", waits, func(s *stage) { s.goOn("resume") }, func(s *stage) { s.first.lose(false) }, 3, "", "command_paused first, work_ended next",
			stopped + "resume\nthe lock was resumed, and the command continued\nrelease next"},
		{"pause, not resumed", "pause", forever, func(s *stage) { s.first.resume = func() (*fakeLock, error) { return nil, s.first.Lost().Err } },
			func(s *stage) { s.first.lose(false) }, 0, killed, "command_paused first, work_ended first",
			stopped + "the lock could not be resumed: shared lock lost: it is gone (key first)\nrelease first"},
		{"pause, resumed when its lease is over", "pause", forever, func(s *stage) { s.late(true, nil) },
			func(s *stage) { s.first.lose(false) }, 0, "shared lock lost: it is gone (key next); repolock killed the command", "command_paused first, work_ended next",
			stopped + "resume\nthe lock could not be resumed: shared lock lost: it is gone (key next)\nrelease next"},
		{"pause, resumed twice", "pause", waits,
			func(s *stage) {
				again := newLock("again")
				again.release = func() { s.say("release again") }
				s.late(false, func() (*fakeLock, error) { s.say("resume again"); return again, nil })
				s.goOn("resume again")
			},
			func(s *stage) { s.first.lose(false) }, 3, "", "command_paused first, command_paused next, work_ended again",
			stopped + "resume\nthe lock was resumed, and lost before the command could go on; trying again: shared lock lost: it is gone (key next)\n" +
				"resume again\nthe lock was resumed, and the command continued\nrelease again"},
		{"pause, resumed, and lost for good", "pause", forever,
			func(s *stage) {
				s.heard = func(what string) {
					if what == "the lock was resumed, and the command continued" {
						s.next.lose(true)
					}
				}
			}, func(s *stage) { s.first.lose(false) }, 0, "shared lock lost: it is gone (key next); repolock killed the command", "command_paused first, work_ended next",
			stopped + "resume\nthe lock was resumed, and the command continued\nrelease next"},
		{"pause, and it ends when the lock is resumed", "pause", forever, func(s *stage) {
			resumed = func() {
				_ = syscall.Kill(-s.pid, syscall.SIGKILL)
				for !slices.Contains([]string{"", "Z"}, states.Of(s.pid)) {
					time.Sleep(time.Millisecond)
				}
			}
		}, func(s *stage) { s.first.lose(false) }, 128 + int(syscall.SIGKILL), "", "command_paused first, work_ended next",
			stopped + "resume\nthe lock was resumed, and the command continued\nrelease next"},
		{"warn, and it fails", "warn", waits, func(s *stage) { s.goOn("without it") }, func(s *stage) { s.first.lose(true) }, 3, "", "work_ended first", without + "release first"},
		{"warn, after a refresh that has failed", "warn", waits, func(s *stage) { s.goOn("without it") }, func(s *stage) {
			s.locker.happen(replock.EventRefreshFailed)
			s.first.lose(true)
		}, 3, "", "refresh_failed, work_ended first", "a refresh has failed\n" + without + "release first"},
		{"warn, and it succeeds", "warn", "echo > begun; read x < go", func(s *stage) { s.goOn("without it") }, func(s *stage) { s.first.lose(false) }, 0,
			"shared lock lost: it is gone (key first); the command has exited with 0", "work_ended first", without + "release first"},
		{"term", "term", "exec 2> /dev/null; trap 'exit 0' TERM; echo > begun; while :; do sleep 0.1; done",
			func(s *stage) { s.first = s.until("first", clock.System{}.Elapsed()+30*time.Second+breath, false) }, nil, 0, // 30 s are the notice
			"exclusive lock lost: it could not be refreshed in time (key first); the command has exited with 0", "work_ended first",
			"the lock can't be refreshed: the command is sent TERM, and killed when the lock is lost\nrelease first"},
		{"term, and it takes its time", "term", "exec 2> /dev/null; n=0; trap 'n=$((n+1))' TERM; echo > begun; for i in 1 2 3 4 5 6 7 8 9; do sleep 0.1; done; exit $((n+10))",
			func(s *stage) { s.first = s.until("first", clock.System{}.Elapsed()+30*time.Second+breath, false) }, nil, 11, "", "work_ended first", // one TERM
			"the lock can't be refreshed: the command is sent TERM, and killed when the lock is lost\nrelease first"},
		{"broken after the last look", "pause", "echo > begun", func(s *stage) { s.first.check = func() { s.first.lose(true) } }, nil, 0,
			"shared lock lost: it is gone (key first); the command has exited with 0", "work_ended first", "release first"},
		{"not reached after the last look", "pause", "echo > begun", func(s *stage) { s.first.err = store.ErrUnreachable }, nil, 0, "", "work_ended first", "release first"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newStage(t, c.onLost, c.command)
			t.Cleanup(func() { resumed = func() {} })
			code, err := s.runs(c.set, c.begun)
			assert.That(t, code == c.code && (err == nil) == (c.fails == "") && (err == nil || errors.Is(err, replock.ErrLost) && err.Error() == c.fails),
				"%d, %v, want %d, %s", code, err, c.code, c.fails)
			assert.Equal(t, strings.Join(s.events, ", "), c.events, "events")
			said := regexp.MustCompile(`until 20[^,]*Z`).ReplaceAllString(strings.Join(s.said, "\n"), "until TIME")
			assert.Equal(t, said, c.said, "it said")
		})
	}
}

// runs runs the command: set prepares the stage, and begun is called when the command has written its file "begun". Both
// can be nil.
func (s *stage) runs(set, begun func(*stage)) (int, error) {
	if set != nil {
		set(s)
	}
	go func() {
		text, err := os.ReadFile("begun")
		if err == nil && begun != nil {
			_, _ = fmt.Sscan(string(text), &s.pid)
			begun(s)
		}
	}()
	return s.run()
}

// TestSuccessOfALostLock: a command stores its success (--once-per) only if its lock lasted until its end, or was
// resumed. Its exit code is 0 in each case, unless it is killed.
func TestSuccessOfALostLock(t *testing.T) {
	const (
		quick = "echo > begun"
		waits = "echo $$ > begun; read x < go"
		traps = "exec 2> /dev/null; trap 'exit 0' TERM; echo > begun; while :; do sleep 0.1; done"
	)
	all := []string{"pause", "term", "kill", "warn"}
	atCheck := func(definite bool) func(*stage) {
		return func(s *stage) { s.first.check = func() { s.first.lose(definite) } }
	}
	for _, c := range []struct {
		name, command string
		onLost        []string
		set, begun    func(*stage)
		lost, stored  bool // the result is an error; there is a success
	}{
		{"held", quick, all, nil, nil, false, true},
		{"broken at the end", quick, all, atCheck(true), nil, true, false},
		{"at its deadline at the end", quick, all[:3], atCheck(false), nil, false, false},
		{"at its deadline at the end", quick, all[3:], atCheck(false), nil, true, false},
		{"broken", waits, all, func(s *stage) { s.goOn("without it") }, func(s *stage) { s.first.lose(true) }, true, false},
		{"lost", waits, all[1:], func(s *stage) { s.goOn("without it") }, func(s *stage) { s.first.lose(false) }, true, false},
		{"not resumed", waits, all[:1], func(s *stage) { s.first.resume = func() (*fakeLock, error) { return nil, s.first.Lost().Err } },
			func(s *stage) { s.first.lose(false) }, true, false},
		{"resumed", waits, all[:1], func(s *stage) { s.goOn("resume") }, func(s *stage) { s.first.lose(false) }, false, true},
		{"ended before its deadline", traps, all[1:2], func(s *stage) { s.first = s.until("first", clock.System{}.Elapsed()+29*time.Second, false) }, nil, true, false},
	} {
		for _, onLost := range c.onLost {
			t.Run(c.name+", "+onLost, func(t *testing.T) {
				s := newStage(t, onLost, c.command)
				kept := memory.New(memory.Options{})
				s.Request.Once = newOnce(kept)
				code, err := s.runs(c.set, c.begun)
				_, _, missing := kept.Get(t.Context(), s.Request.Once.key(), maxSuccess)
				warned := slices.Contains(s.said, "warning: the success can't be stored, so the next start runs the command again: lock lost")
				assert.That(t, code == 0 && errors.Is(err, replock.ErrLost) == c.lost && (missing == nil) == c.stored && warned == (!c.lost && !c.stored),
					"%d, %v, stored: %v, said %q", code, err, missing == nil, s.said)
			})
		}
	}
}

// TestNotAcquired: a command isn't started without its lock, and no lock is acquired for a command that
// can't be started. A lock that is acquired just after a signal is released. The class of the error shows whether a
// store has answered.
func TestNotAcquired(t *testing.T) {
	for _, answered := range []bool{true, false} {
		s := newStage(t, "pause", "echo > ran")
		s.locker.answered = answered
		s.locker.acquire = func(context.Context) (*lease.Set, error) { return nil, store.ErrUnreachable }
		_, err := s.run()
		assert.That(t, errors.Is(err, fault.NotAcquired) && errors.Is(err, fault.Unanswered) != answered && errors.Is(err, store.ErrUnreachable), "%v", err)
		_, err = os.Stat("ran")
		assert.That(t, err != nil && strings.Join(s.events, " ") == "not_acquired", "it ran: %v; %s", err, s.events)
	}
	s := newStage(t, "pause", "")
	s.Args = []string{"./none"}
	s.locker.acquire = func(context.Context) (*lease.Set, error) {
		t.Error("it is acquired for no command")
		return s.first.held(), nil
	}
	_, err := s.run()
	assert.That(t, errors.Is(err, procgroup.ErrNotFound) && strings.Join(s.events, " ") == "not_acquired", "%v, %s", err, s.events)
	s = newStage(t, "pause", "echo > ran")
	s.locker.acquire = func(ctx context.Context) (*lease.Set, error) {
		_ = syscall.Kill(os.Getpid(), syscall.SIGTERM)
		<-ctx.Done()
		return s.first.held(), nil
	}
	_, err = s.run()
	got, _ := SignalOf(err)
	assert.That(t, got == syscall.SIGTERM && strings.Join(s.said, "\n") == "release first", "%v, %q", err, s.said)
	_, err = os.Stat("ran")
	assert.That(t, err != nil, "it ran after a signal")
}

// TestSignalsReachTheCommand: the command gets the signals for repolock, also a signal from before its start.
func TestSignalsReachTheCommand(t *testing.T) {
	const command = "exec 2> /dev/null; trap 'exit 9' USR1; trap 'exit 8' USR2; echo > begun; for i in $(seq 3000); do sleep 0.01; done"
	for _, early := range []bool{false, true} {
		s := newStage(t, "pause", command)
		if early {
			s.locker.acquire = func(context.Context) (*lease.Set, error) {
				err := syscall.Kill(os.Getpid(), syscall.SIGUSR1)
				time.Sleep(50 * time.Millisecond) // in which the signal comes; it is the command's later, too
				return s.first.held(), err
			}
		}
		go func() {
			_, _ = os.ReadFile("begun")
			_ = syscall.Kill(os.Getpid(), syscall.SIGUSR2)
		}()
		code, err := s.run()
		got := err == nil && code == 8
		if early { // before the traps or after them
			got = err == nil && (code == 9 || code == 128+int(syscall.SIGUSR1))
		}
		assert.That(t, got, "early %t: %d, %v", early, code, err)
	}
}

// TestAllowance: under an outer lock an allowance lasts for a moment, whatever --on-lost is. The guard compares its clocks
// with their last reading before an answered look at the lock.
func TestAllowance(t *testing.T) {
	lock := newLock("id")
	looked := clock.Reading{Wall: time.Hour, Elapsed: time.Minute}
	lock.Saw(looked)
	for _, c := range []struct {
		onLost string
		inner  bool
		expiry procgroup.Expiry
		until  time.Duration // from now
		seen   bool          // the look at the lock matters
	}{
		{"pause", false, procgroup.Stop, time.Hour, true},
		{"term", false, procgroup.Kill, time.Hour, true},
		{"kill", false, procgroup.Kill, time.Hour, true},
		{"warn", false, procgroup.Nothing, time.Hour, true},
		{"pause", true, procgroup.Stop, time.Second, true},
		{"term", true, procgroup.Stop, time.Second, true},
		{"kill", true, procgroup.Stop, time.Second, true},
		{"warn", true, procgroup.Stop, time.Second, false},
	} {
		s := &session{Command: Command{OnLost: c.onLost}, holder: holder{lock: lock.held()}, inner: c.inner}
		before := clock.System{}.Elapsed()
		if !c.inner {
			before = lock.Deadline() - time.Hour
		}
		a := s.allowance(breath)
		late := a.Until - before - c.until
		assert.That(t, late >= 0 && late <= time.Minute && (c.inner || late == 0) && s.expiry() == c.expiry && (a.Seen == looked) == c.seen,
			"%+v: until %v later, %v, seen at %+v", c, late, s.expiry(), a.Seen)
	}
	lock = lockUntil("id", 5, false)
	a := (&session{Command: Command{OnLost: "pause"}, holder: holder{lock: lock.held()}, inner: true}).allowance(breath)
	assert.That(t, a.Until == 5, "beyond the own deadline: %v", a.Until)
}

// TestResult: the loss of the lock wins over exit code 0, and over a death that repolock has caused, by a kill or by the
// TERM of --on-lost term. It hides no other end of the command.
func TestResult(t *testing.T) {
	gone := &replock.LostError{Reason: "it is gone"}
	for _, c := range []struct {
		onLost string
		lost   error
		killed bool
		status procgroup.Status
		code   int // -1: the loss
	}{
		{"pause", nil, false, procgroup.Status{Code: 5}, 5},
		{"pause", gone, false, procgroup.Status{}, -1},
		{"pause", gone, true, procgroup.Status{Signal: syscall.SIGKILL}, -1},
		{"pause", gone, true, procgroup.Status{Code: 5}, -1},
		{"term", gone, false, procgroup.Status{Signal: syscall.SIGTERM}, -1},
		{"term", gone, false, procgroup.Status{Code: 5}, 5},
		{"term", gone, false, procgroup.Status{}, -1},
		{"warn", gone, false, procgroup.Status{Code: 5}, 5},
		{"warn", gone, false, procgroup.Status{Signal: syscall.SIGSEGV}, 139},
		{"warn", gone, false, procgroup.Status{}, -1},
	} {
		s := &session{Command: Command{OnLost: c.onLost}, holder: holder{Request: Request{Console: new(stage)}}, lost: c.lost, killed: c.killed}
		s.lock = newLock("id").held()
		code, err := s.result(c.status)
		lost := errors.Is(err, replock.ErrLost)
		assert.That(t, lost == (c.code < 0) && (lost || err == nil && code == c.code), "%+v: %d, %v", c, code, err)
	}
}

// TestEnds: the signals by which a person or a system ends a job end the wait for its lock, and no others.
func TestEnds(t *testing.T) {
	ends := []os.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT}
	for n := range syscall.Signal(32) {
		assert.Equal(t, Ends(n), slices.Contains(ends, os.Signal(n)), "%v", n)
	}
}

// TestNotice: --on-lost term sends TERM a twelfth of the ttl before the deadline, and 30 s at most. Until then a refresh
// can succeed.
func TestNotice(t *testing.T) {
	for ttl, want := range map[time.Duration]time.Duration{
		10 * time.Second: 10 * time.Second / 12, time.Minute: 5 * time.Second, 6 * time.Minute: 30 * time.Second, 24 * time.Hour: 30 * time.Second,
	} {
		s := &session{holder: holder{Request: Request{TTL: ttl}}}
		assert.Equal(t, s.notice(), want, "of %v", ttl)
	}
}

// slowConn is a connection that the guard gets only when the first allowance under an outer lock is over.
type slowConn struct{ *os.File }

func (c slowConn) SyscallConn() (syscall.RawConn, error) {
	_ = clock.Sleep(context.Background(), clock.System{}, 2*breath+100*time.Millisecond)
	return c.File.SyscallConn()
}

// TestSlowStart: under an outer lock a command starts although its start takes longer than an allowance lasts. It
// doesn't start if its own lock is lost meanwhile.
func TestSlowStart(t *testing.T) {
	t.Setenv(outerVariable, "aa:elsewhere")
	for _, held := range []bool{true, false} {
		s := newStage(t, "pause", "echo > ran")
		if !held {
			s.first = s.until("first", clock.System{}.Elapsed()+2*breath, false)
		}
		null, err := os.Open(os.DevNull)
		assert.OK(t, err)
		defer null.Close()
		s.first.connection = func() syscall.Conn { return slowConn{null} }
		_, err = s.run()
		_, ran := os.Stat("ran")
		assert.That(t, (err == nil) == held && (ran == nil) == held && (held || errors.Is(err, procgroup.ErrExpired)), "held %t: %v, %v", held, err, ran)
	}
}

// TestUnguardedIsSaid: the record and the message of a lost guard have the cause, and say whether the command is stopped.
func TestUnguardedIsSaid(t *testing.T) {
	why := fmt.Errorf("%w: no more processes", procgroup.ErrUnguarded)
	const warning = "warning: no guard watches the command: no more processes; "
	for _, c := range []struct {
		onLost  string
		over    bool
		kind    replock.EventKind
		stopped bool
		says    string
	}{
		{"pause", false, events.GuardLost, true, warning + "the command is stopped until a guard watches it again"},
		{"pause", true, events.GuardReplaced, false, "a guard watches the command again, which goes on"},
		{"warn", false, events.GuardLost, false, warning + "the command runs on (--on-lost warn)"},
		{"warn", true, events.GuardReplaced, false, "a guard watches the command again"},
	} {
		s := newStage(t, c.onLost, "")
		of := &session{Command: s.Command, holder: holder{Request: s.Request, lock: s.first.held()}}
		var got events.Event
		of.sinks = []events.Sink{sink(func(e events.Event) { got = e })}
		of.interruptedGroup(why, c.over)
		of.flush()
		assert.That(t, got.Kind == c.kind && got.ID == "first" && got.Stopped == c.stopped && (got.Err == why) == !c.over, "%+v: %+v", c, got)
		assert.Equal(t, s.said, []string{c.says}, "%+v", c)
	}
}

// TestContinuedByOtherIsSaid: a command that another process continues is stopped again, and killed if that happens too
// often. The record and the message say so.
func TestContinuedByOtherIsSaid(t *testing.T) {
	for killed, says := range map[bool]string{
		false: "another process has continued the stopped command (cpulimit, kill -CONT, a debugger): repolock has stopped it again, and kills it at the 4th time",
		true:  "another process has continued the stopped command 4 times: repolock kills the command",
	} {
		s := newStage(t, "pause", "")
		of := &session{Command: s.Command, holder: holder{Request: s.Request, lock: s.first.held()}}
		var got events.Event
		of.sinks = []events.Sink{sink(func(e events.Event) { got = e })}
		of.continuedByOther(killed)
		of.flush()
		assert.That(t, got.Kind == events.ContinuedByOther && got.ID == "first" && got.Killed == killed, "%+v", got)
		assert.Equal(t, s.said, []string{says})
	}
}

// TestRunsOnIsSaid: a warning tells what couldn't be done to which processes, and names at most maxPIDs of them.
func TestRunsOnIsSaid(t *testing.T) {
	many := slices.Repeat([]int{7}, maxPIDs+1)
	for _, c := range []struct {
		pids   []int
		killed bool
		says   string
	}{
		{nil, false, "processes of the command can't be stopped; they run on"},
		{[]int{7}, false, "1 process of the command can't be stopped: pid 7; it runs on"},
		{[]int{7, 8}, true, "2 processes of the command can't be killed: pid 7, 8; they run on"},
		{many, true, "11 processes of the command can't be killed: pid 7" + strings.Repeat(", 7", maxPIDs-1) + ", …; they run on"},
	} {
		s := newStage(t, "pause", "")
		of := &session{Command: s.Command, holder: holder{Request: s.Request, lock: s.first.held()}}
		var got events.Event
		of.sinks = []events.Sink{sink(func(e events.Event) { got = e })}
		of.runsOn(c.pids, c.killed)
		of.flush()
		assert.That(t, got.Kind == events.CommandRunsOn && got.Killed == c.killed && slices.Equal(got.PIDs, c.pids), "%+v", got)
		assert.Equal(t, s.said, []string{c.says})
	}
}

// TestContinuedWhileResuming: another process continues the command again and again while its lock is resumed. The
// command is killed, and the loss of the lock is the result.
func TestContinuedWhileResuming(t *testing.T) {
	s := newStage(t, "pause", "echo $$ > begun; exec sleep 30")
	s.first.resume = func() (*fakeLock, error) {
		for begin := time.Now(); states.Of(s.pid) != "" && states.Of(s.pid) != "Z"; {
			_ = syscall.Kill(s.pid, syscall.SIGCONT)
			assert.Need(t, time.Since(begin) < time.Minute, "it is never killed")
		}
		return nil, s.first.Lost().Err
	}
	go func() {
		text, _ := os.ReadFile("begun")
		_, _ = fmt.Sscan(string(text), &s.pid)
		s.first.lose(false)
	}()
	_, err := s.run()
	assert.Says(t, err, replock.ErrLost, "shared lock lost: it is gone (key first); repolock killed the command")
	assert.Equal(t, strings.Join(s.events, ", "), "command_paused first, command_continued_by_other first, command_continued_by_other first, work_ended first")
}

// TestGivesUp: a resume whose store hangs ends with Ctrl-C, and after ResumeFor. So does the resume of a lock that was
// lost a second time. The command, which is stopped, is killed.
func TestGivesUp(t *testing.T) {
	for _, second := range []bool{false, true} {
		for _, resumeFor := range []time.Duration{time.Hour, 50 * time.Millisecond} {
			s := newStage(t, "pause", "echo $$ > begun; exec sleep 30")
			s.ResumeFor = resumeFor
			lost := time.Now()
			hangs := func(ctx context.Context) {
				deadline, ok := ctx.Deadline()
				left := deadline.Sub(lost)
				assert.That(t, ok && left >= resumeFor && left <= resumeFor+time.Minute, "it has %v", left)
				if resumeFor == time.Hour {
					_ = syscall.Kill(os.Getpid(), syscall.SIGINT)
				}
			}
			if s.first.hangs = hangs; second && resumeFor == time.Hour {
				s.first.hangs = nil
				s.late(false, nil)
				resume := s.first.resume
				s.first.resume = func() (*fakeLock, error) {
					next, err := resume()
					next.hangs = hangs
					return next, err
				}
			}
			go func() {
				text, _ := os.ReadFile("begun")
				_, _ = fmt.Sscan(string(text), &s.pid)
				lost = time.Now()
				s.first.lose(false)
			}()
			_, err := s.run()
			assert.Says(t, err, replock.ErrLost, "repolock killed the command")
			why := "the lock could not be resumed: interrupted"
			if resumeFor != time.Hour {
				why = "the lock could not be resumed: "
			}
			assert.That(t, strings.Contains(strings.Join(s.said, "\n"), why), "%q", s.said)
		}
	}
}

// TestMayContinue: a command that is continued by hand goes on if the lease of its lock lasts.
func TestMayContinue(t *testing.T) {
	for _, c := range []struct {
		onLost   string
		left     time.Duration
		lost, on bool
	}{
		{"pause", time.Hour, false, true}, {"pause", 0, false, false}, {"pause", time.Hour, true, false}, {"kill", 0, false, false}, {"warn", 0, true, true},
	} {
		lock := lockUntil("id", clock.System{}.Elapsed()+c.left, false)
		if c.lost {
			lock.lose(false)
		}
		s := &session{Command: Command{OnLost: c.onLost}}
		s.lock = lock.held()
		assert.That(t, s.mayContinue(nil) == c.on && s.denied.Load() != c.on, "%+v: denied %t", c, s.denied.Load())
	}
}

// newKeeper is a keeper of a stage's lock.
func newKeeper(t *testing.T, onLost string) (*stage, *keeper) {
	t.Helper()
	s := newStage(t, onLost, "")
	k := &keeper{Keeper: Keeper{Request: s.Request, Token: "token", OnLost: onLost}, holder: holder{Request: s.Request, cancel: func(error) { s.say("cancel") }}}
	k.Describe = func(err error) json.RawMessage { return json.RawMessage(fmt.Sprintf("%q", err)) }
	assert.OK(t, k.open())
	return s, k
}

// TestKeeperAnswers: a lock is held as long as its lease lasts, even if the store is silent. The script's request
// releases it, and the work counts as a success if the lock was held until then. A release that can't delete
// the lock fails.
func TestKeeperAnswers(t *testing.T) {
	late := func(s *stage) { s.first = s.until("first", clock.System{}.Elapsed(), true) }
	for _, c := range []struct {
		do      string
		set     func(*stage)
		failure string
		unseen  bool
	}{
		{"check", func(*stage) {}, "", false},
		{"check", func(s *stage) { s.first.err = store.ErrUnreachable }, "", true},
		{"check", func(s *stage) { s.first.lose(true) }, "it is gone", false},
		{"check", late, "it is gone", false},
		{"renew", func(*stage) {}, "", false},
		{"renew", func(s *stage) { s.first.err = store.ErrUnreachable }, "the lock is held, but couldn't be refreshed now; it is lost in", false},
		{"renew", late, "it is gone", false},
		{"release", func(*stage) {}, "", false},
		{"release", func(s *stage) { s.first.lose(true) }, "it is gone", false},
		{"release", func(s *stage) { s.first.releaseErr = store.ErrUnreachable }, "store can't be reached", false},
		{"dance", func(*stage) {}, "doesn't do that", false},
	} {
		s, k := newKeeper(t, "warn")
		c.set(s)
		k.lock = s.first.held()
		success := "none"
		k.sinks = []events.Sink{sink(func(e events.Event) { success = fmt.Sprint(e.Success) })}
		got, then := k.serve(t.Context(), c.do)
		a, failure := got.(Answer), ""
		if a.Failure != nil {
			failure = string(*a.Failure)
		}
		assert.That(t, (failure == "") == (c.failure == "") && strings.Contains(failure, c.failure) && (a.Unseen != "") == c.unseen && a.ID == "first" && a.Token == "token",
			"%s: %+v, failure %s, want %q", c.do, a, failure, c.failure)
		if (then != nil) != (c.do == "release") {
			t.Errorf("%s ends the keeper: %t", c.do, then != nil)
			continue
		}
		k.passed.Flush(t.Context())
		if then == nil {
			assert.That(t, len(s.said) == 0 && success == "none", "%s: %q, %s", c.do, s.said, success)
			continue
		}
		then()
		assert.That(t, strings.Join(s.said, ", ") == "release first, cancel" && success == fmt.Sprint(s.first.Lost() == nil) && s.first.finished == success,
			"%q, success %s, and the lock got %s", s.said, success, s.first.finished)
		k.end(false) // as the keeper does when it ends
		k.passed.Flush(t.Context())
		assert.That(t, s.first.finished == success && success == fmt.Sprint(s.first.Lost() == nil), "a second result counts: %s, and %s for the lock", success, s.first.finished)
		assert.That(t, k.held() != nil, "%s: it is held after its release", c.do)
	}
}

// TestInterrupt: Interrupt signals the other processes of its job only if they weren't signalled already. It ends its own
// process by the signal in both cases. The test runs itself on a terminal, in the job of a shell.
func TestInterrupt(t *testing.T) {
	const variable = "TEST_INTERRUPT"
	if others := os.Getenv(variable); others != "" {
		Interrupt(syscall.SIGINT, others == "true")
		t.Fatal("it goes on")
	}
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGINT) // the shell must not inherit that the signal is ignored
	defer signal.Stop(signals)
	self, err := os.Executable()
	assert.OK(t, err)
	for _, others := range []string{"true", "false"} {
		sh := exec.Command("sh", "-c", `trap 'echo signalled' INT; "$0" -test.run='^TestInterrupt$' >/dev/null; echo "status $?"`, self)
		sh.Env = append(os.Environ(), variable+"="+others)
		terminal, err := pty.Start(sh)
		assert.OK(t, err)
		shown, _ := io.ReadAll(terminal) // the end of a terminal is an error
		terminal.Close()
		assert.OK(t, sh.Wait())
		assert.That(t, strings.Contains(string(shown), "signalled") == (others == "true") && strings.Contains(string(shown), "status 130"), "others %s: %q", others, shown)
	}
}

// TestHolding: a keeper describes the mode of its lock, and the ids of all locks if there are several.
func TestHolding(t *testing.T) {
	_, k := newKeeper(t, "warn")
	one, two := newLock("one"), newLock("two")
	two.shared = true
	for _, c := range []struct {
		lock *lease.Set
		mode string
		ids  []string
	}{{one.held(), "exclusive", nil}, {two.held(), "shared", nil}, {lease.Join(nil, lease.Hold(one), lease.Hold(two)), "exclusive", []string{"one", "two"}}} {
		k.lock = c.lock
		h := k.holding()
		assert.Equal(t, h.Mode, c.mode)
		assert.Equal(t, h.IDs, c.ids)
	}
}

// TestLossAtRelease: a loss that only the release finds is shown.
func TestLossAtRelease(t *testing.T) {
	for _, lost := range []bool{true, false} {
		s, k := newKeeper(t, "warn")
		k.lock = s.first.held()
		if lost {
			s.first.releaseErr = &replock.LostError{Mode: replock.Shared, Reason: "it is gone"}
		}
		k.release()
		k.flush()
		said := strings.Join(s.said, "\n")
		assert.Equal(t, strings.Contains(said, "shared lock lost: it is gone"), lost, said)
	}
}

type sink func(events.Event)

func (f sink) Handle(e events.Event) { f(e) }

// TestOwnerOfALostLock: --on-lost decides which signal the owner of a lost lock gets.
func TestOwnerOfALostLock(t *testing.T) {
	for onLost, want := range map[string]syscall.Signal{"warn": 0, "term": syscall.SIGTERM, "kill": syscall.SIGKILL} {
		owner := exec.Command("sleep", "1000")
		assert.OK(t, owner.Start())
		p, _ := identity.Of(owner.Process.Pid)
		s, k := newKeeper(t, onLost)
		k.Owner, k.owner = &p, daemon.Watch(p)
		k.onLost(&replock.LostError{Mode: replock.Shared, Reason: "it is gone"})
		k.flush()
		said := s.said[len(s.said)-1]
		assert.That(t, said == "shared lock lost: it is gone" && (len(s.said) == 2) == (want != 0), "%s: %q", onLost, s.said)
		if want == 0 {
			_ = owner.Process.Signal(syscall.SIGUSR2) // nohup doesn't ignore it
			want = syscall.SIGUSR2
		}
		_ = owner.Wait()
		assert.Equal(t, owner.ProcessState.Sys().(syscall.WaitStatus).Signal(), want, onLost)
	}
}

// TestNoOwnerToSignal: a keeper doesn't claim that it has signalled an owner that has ended, or that it doesn't have.
func TestNoOwnerToSignal(t *testing.T) {
	ended := exec.Command("true")
	assert.OK(t, ended.Start())
	p, _ := identity.Of(ended.Process.Pid)
	assert.OK(t, ended.Wait())
	for _, watched := range []bool{true, false} {
		s, k := newKeeper(t, "kill")
		want := []string{"shared lock lost: it is gone"}
		if watched {
			k.Owner, k.owner = &p, daemon.Watch(p)
			want = append([]string{fmt.Sprintf("process %d can't be signalled: os: process already finished", p.PID)}, want...)
		}
		k.onLost(&replock.LostError{Mode: replock.Shared, Reason: "it is gone"})
		k.flush()
		assert.Equal(t, s.said, want)
	}
}
