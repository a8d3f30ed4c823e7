package main

import (
	"bytes"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/repolock/repolock/replock"
	"github.com/repolock/repolock/store"
)

// TestNoSecondWithoutAWord: on a terminal a live line appears a second after a wait has begun, says
// what repolock waits for or which request has failed, is drawn each second, and goes with the wait.
// A wait that ends at once shows nothing, and a retry while the command runs doesn't either.
func TestNoSecondWithoutAWord(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out said
		began := time.Now()
		w := &console{
			reporter: &reporter{stderr: &out, terminal: func() bool { return true }},
			elapsed:  func() time.Duration { return time.Since(began) },
		}
		shows := func(want string) {
			t.Helper()
			synctest.Wait()
			said := out.take()
			if last := said[strings.LastIndex(strings.TrimSuffix(said, "\r"), "\r")+1:]; strings.TrimSuffix(last, "\r") != want {
				t.Errorf("shown: %q, want %q", said, want)
			}
		}
		retrying := replock.Event{Kind: replock.EventRetrying, Err: &store.Error{Op: "list", Key: "k", Err: errors.New("refused")}, Left: 3 * time.Second}
		w.BeginWait("acquiring the lock: repository x")
		time.Sleep(900 * time.Millisecond)
		shows("")
		time.Sleep(100 * time.Millisecond)
		shows("acquiring the lock, 1s: repository x")
		time.Sleep(time.Second)
		shows("acquiring the lock, 2s: repository x")
		w.Event(retrying)
		time.Sleep(time.Second)
		shows("retrying for 2s at most: refused (list \"k\")")
		time.Sleep(time.Second)
		shows("retrying for 1s at most: refused (list \"k\")")
		time.Sleep(time.Second) // the request was given up, and nothing has come since
		shows("acquiring the lock, 5s: repository x")
		w.Event(replock.Event{Kind: replock.EventWaiting, Holders: []replock.Info{{Holder: "web1 (pid 1)", Operation: "backup", Keys: []string{"k"}}}})
		time.Sleep(time.Second)
		shows("waiting 1s for backup on web1 (pid 1)")
		w.Interrupted()
		shows("interrupted: deleting the lock that might have been written")
		w.Event(retrying)
		time.Sleep(time.Second)
		shows("interrupted, 1s: deleting the lock that might have been written")
		w.EndWait()
		synctest.Wait()
		if said := out.take(); said != erase {
			t.Errorf("at the end: %q", said)
		}

		w.Event(retrying)
		w.BeginWait("releasing the lock")
		w.EndWait()
		time.Sleep(time.Minute)
		shows("")
	})
}

// TestNoSecondWithoutALine: on a terminal that can't erase a line, each state is said in a whole line,
// once: a second after the wait has begun what repolock waits for, then a retry with its cause, and
// an interrupt.
func TestNoSecondWithoutALine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out said
		began, yes, no := time.Now(), func() bool { return true }, func() bool { return false }
		w := &console{
			reporter: &reporter{stderr: &out, terminal: no, plain: yes},
			elapsed:  func() time.Duration { return time.Since(began) },
		}
		says := func(want string) {
			t.Helper()
			time.Sleep(time.Second)
			synctest.Wait()
			if said := out.take(); said != want {
				t.Errorf("said: %q, want %q", said, want)
			}
		}
		retrying := replock.Event{Kind: replock.EventRetrying, Err: errors.New("refused"), Left: 3 * time.Second}
		w.BeginWait("acquiring the lock: repository x")
		says("repolock: acquiring the lock: repository x\n")
		says("")
		w.Event(retrying)
		says("repolock: retrying for 2s at most: refused\n")
		w.Event(retrying)
		says("")
		time.Sleep(5 * time.Second)
		says("")
		w.Event(replock.Event{Kind: replock.EventWaiting, Mode: replock.Shared, Holders: []replock.Info{{Holder: "web1 (pid 1)", Operation: "backup", Keys: []string{"k"}}}})
		says("repolock: waiting for the shared lock, held by backup on web1 (pid 1)\n")
		says("")
		w.Event(replock.Event{Kind: replock.EventWaiting, Mode: replock.Shared, Holders: []replock.Info{{Holder: "web2 (pid 9)", Operation: "prune", State: replock.StateWaiting, Keys: []string{"k"}}}})
		says("repolock: waiting for the shared lock, reserved for prune on web2 (pid 9), waiting\n")
		says("")
		w.Interrupted()
		says("repolock: interrupted: deleting the lock that might have been written\n")
		w.EndWait()
		says("")
		w.Quiet = true
		w.BeginWait("acquiring the lock: repository x")
		says("")
		w.EndWait()
	})
}

// said is the output of a process or a reporter. It can be read while it is written.
type said struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (s *said) Write(text []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.Write(text)
}

func (s *said) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.String()
}

// take returns the text, and forgets it.
func (s *said) take() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	defer s.text.Reset()
	return s.text.String()
}
