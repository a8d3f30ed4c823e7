package show

import (
	"bytes"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/repolock/repolock/internal/test/assert"
	"github.com/repolock/repolock/replock"
	"github.com/repolock/repolock/store"
)

// onTerminal returns a reporter on a terminal, by the clock of a synctest bubble, and what it writes.
func onTerminal(kind Terminal) (*Reporter, *output) {
	out, began := &output{}, time.Now()
	return &Reporter{Stderr: out, Terminal: func() Terminal { return kind }, Elapsed: func() time.Duration { return time.Since(began) }}, out
}

// TestNoSecondWithoutAWord: on a terminal a live line appears a second after a wait has begun, says
// what repolock waits for or which request has failed, is drawn each second, and goes with the wait. Work on many
// stale locks is shown at once. A wait that ends at once shows nothing, and a retry while the command runs doesn't
// either, nor does anything with --quiet or --json.
func TestNoSecondWithoutAWord(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, out := onTerminal(ErasingTerminal)
		shows := out.shows(t)
		retrying := replock.Event{Kind: replock.EventRetrying, Err: &store.Error{Op: "list", Key: "k", Err: errors.New("refused")}, Left: 3 * time.Second}
		w.BeginWait("acquiring the lock", "repository x")
		time.Sleep(900 * time.Millisecond)
		shows("")
		time.Sleep(100 * time.Millisecond)
		shows("acquiring the lock, 1s: repository x")
		time.Sleep(time.Second)
		shows("acquiring the lock, 2s: repository x")
		w.Event(retrying)
		time.Sleep(time.Second)
		shows("retrying for 2s at most: refused (list)")
		time.Sleep(time.Second)
		shows("retrying for 1s at most: refused (list)")
		time.Sleep(time.Second) // the request was given up, and nothing has come since
		shows("acquiring the lock, 5s: repository x")
		w.Event(replock.Event{Kind: replock.EventWaiting, Holders: []replock.Info{{Holder: "web1 (pid 1)", Operation: "backup", Keys: []string{"k"}}}})
		time.Sleep(time.Second)
		shows("waiting 1s: held by backup on web1 (pid 1)")
		w.Interrupted()
		shows("interrupted: deleting the lock that might have been written")
		w.Event(retrying)
		time.Sleep(time.Second)
		shows("interrupted, 1s: deleting the lock that might have been written")
		w.EndWait()
		synctest.Wait()
		assert.Equal(t, out.take(), Erase, "at the end")

		w.Event(replock.Event{Kind: replock.EventReading})
		shows("reading many locks, which might be stale")
		w.Event(replock.Event{Kind: replock.EventReading, Done: 700})
		time.Sleep(time.Second)
		shows("reading many locks, which might be stale: 700 done")
		w.Event(replock.Event{Kind: replock.EventReaping, Done: 2300, Total: 10_000})
		time.Sleep(time.Second)
		shows("removing 10000 stale locks: 2300 done")
		w.EndWait()
		assert.Equal(t, out.take(), Erase, "at the end of the work")

		w.Event(retrying)
		w.BeginWait("releasing the lock", "")
		w.EndWait()
		time.Sleep(time.Minute)
		shows("")

		for _, w.Options = range []Options{{Quiet: true}, {JSON: true}} {
			w.Step("doctor", "list after write")
			time.Sleep(time.Minute)
			w.EndWait()
			shows("")
		}
	})
}

// TestNoSecondWithoutALine: on a terminal that can't erase a line, each state is said in a whole line,
// once: a second after the wait has begun what repolock waits for, then a retry with its cause, and
// an interrupt.
func TestNoSecondWithoutALine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, out := onTerminal(DumbTerminal)
		says := func(want string) {
			t.Helper()
			time.Sleep(time.Second)
			synctest.Wait()
			said := out.take()
			assert.That(t, said == want, "said: %q, want %q", said, want)
		}
		retrying := replock.Event{Kind: replock.EventRetrying, Err: errors.New("refused"), Left: 3 * time.Second}
		w.BeginWait("acquiring the lock", "repository x")
		says("repolock: acquiring the lock: repository x\n")
		says("")
		w.Event(retrying)
		says("repolock: retrying for 2s at most: refused\n")
		w.Event(retrying)
		says("")
		time.Sleep(5 * time.Second)
		says("")
		waiting := replock.Event{Kind: replock.EventWaiting, Mode: replock.Shared, Holders: []replock.Info{{Holder: "web1 (pid 1)", Operation: "backup", Keys: []string{"k"}}}}
		w.Event(waiting)
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
		w.BeginWait("acquiring the lock", "repository x")
		says("")
		w.EndWait()

		w, out = onTerminal(NoTerminal)
		for range 2 {
			w.Event(waiting)
		}
		says("repolock: waiting for the shared lock, held by backup on web1 (pid 1)\n")
	})
}

// TestNoSilenceInAPipe: in a pipe or a file a wait of 2 s without an answer is said, once, and then the cause of a
// retry. A wait that ends sooner says nothing.
func TestNoSilenceInAPipe(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, out := onTerminal(NoTerminal)
		w.Patience = 2 * time.Second
		says := func(after time.Duration, want string) {
			t.Helper()
			time.Sleep(after)
			synctest.Wait()
			assert.Equal(t, out.take(), want)
		}
		w.BeginWait("acquiring the lock", "repository x")
		says(1900*time.Millisecond, "")
		w.EndWait()
		w.BeginWait("acquiring the lock", "repository x")
		says(1900*time.Millisecond, "")
		says(200*time.Millisecond, "repolock: acquiring the lock: repository x\n")
		says(time.Minute, "")
		w.Event(replock.Event{Kind: replock.EventRetrying, Err: errors.New("refused"), Left: 3 * time.Second})
		says(2*time.Second, "repolock: retrying for 3s at most: refused\n")
		w.Event(replock.Event{Kind: replock.EventWaiting, Mode: replock.Shared, Holders: []replock.Info{{Holder: "web1 (pid 1)", Operation: "backup", Keys: []string{"k"}}}})
		says(time.Minute, "repolock: waiting for the shared lock, held by backup on web1 (pid 1)\n")
		w.EndWait()
		for _, w.Options = range []Options{{Quiet: true}, {JSON: true}} {
			w.BeginWait("acquiring the lock", "repository x")
			says(time.Minute, "")
			w.EndWait()
		}
	})
}

// TestWaitNamesTheRepository: the command that shows further holders names the repository as the command line does.
func TestWaitNamesTheRepository(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		many := make([]replock.Info, MostNamed)
		for i := range many {
			many[i] = replock.Info{ID: string(rune('a' + i)), Holder: "web1 (pid 1)", Operation: "backup", Keys: []string{"k"}}
		}
		for _, kind := range []Terminal{ErasingTerminal, DumbTerminal, NoTerminal} {
			w, out := onTerminal(kind)
			w.Flags = Flags{"repo": "/srv/repo"}
			w.BeginWait("acquiring the lock", "repository x")
			w.Event(replock.Event{Kind: replock.EventWaiting, Mode: replock.Shared, Holders: many})
			time.Sleep(time.Second)
			synctest.Wait()
			w.EndWait()
			said := out.take()
			assert.That(t, strings.Contains(said, "more: repolock -r /srv/repo status"), "on %v: %q", kind, said)
		}
	})
}

// output is the output of a reporter. It can be read while it is written.
type output struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (s *output) Write(text []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.Write(text)
}

// take returns the text, and forgets it.
func (s *output) take() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	defer s.text.Reset()
	return s.text.String()
}

// shows returns a function that checks the last line that a terminal shows since it was checked.
func (s *output) shows(t *testing.T) func(want string) {
	return func(want string) {
		t.Helper()
		synctest.Wait()
		said := s.take()
		last := said[strings.LastIndex(strings.TrimSuffix(said, "\r"), "\r")+1:]
		assert.That(t, strings.TrimSuffix(last, "\r") == want, "shown: %q, want %q", said, want)
	}
}
