//go:build unix && programs

package e2e

import (
	"bufio"
	"encoding/json"
	"errors"
	"io"
	"math/rand/v2"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/repolock/repolock/internal/clock"
	"github.com/repolock/repolock/internal/test/assert"
	"github.com/repolock/repolock/replock"
)

// secondClient is a client in Python that follows each MUST of docs/evidence/protocol.md.
const secondClient = "../examples/protocol/client.py"

// TestProtocolRace: in 300 rounds, in six repositories, two locks of the other client and two of ours come at
// one time, and none is held beside an exclusive one. Both clients get locks of both modes, and are refused
// some.
func TestProtocolRace(t *testing.T) {
	var races [6]*race
	t.Run("rounds", func(t *testing.T) {
		for n := range races {
			t.Run("", func(t *testing.T) {
				t.Parallel()
				races[n] = newRace(t)
				for range 300 / len(races) {
					assert.That(t, !races[n].round(), "two were in at once")
				}
			})
		}
	})
	sum := map[string]count{}
	for _, r := range races {
		for of, n := range r.counts {
			sum[of] = count{sum[of].in + n.in, sum[of].tried + n.tried}
		}
	}
	t.Logf("in, and tried: %v", sum)
	assert.Equal(t, len(sum), 4, "kinds of locks")
	for of, n := range sum {
		assert.That(t, n.in > 0 && n.in < n.tried, "%s: %d of %d got in", of, n.in, n.tried)
	}
}

// TestProtocolRaceFinds: the race finds a client that leaves a rule out, and not the client itself.
func TestProtocolRaceFinds(t *testing.T) {
	for name, c := range map[string]struct {
		change []string
		rounds int
	}{
		"nothing is left out": {nil, 20},
		"own is what this process wrote": {[]string{
			`if key == self.flag or`, `if key == self.flag or b"(pid %d)" % os.getpid() in getattr(found, "body", b"") or`}, 300},
		"it looks before it puts its flag": {[]string{
			`self.store.put(self.flag, self.new_body(self.flag, "acquiring"))  # (2)`,
			`self.look(); self.store.put(self.flag, self.new_body(self.flag, "acquiring")); return Lock(self)`,
			`if self.flag not in listed or`, `if self.flag in listed and`}, 300},
		"an exclusive one ignores shared ones": {[]string{
			`key == self.flag or self.mode == SHARED and`, `key == self.flag or`}, 300},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r, both := newRace(t, c.change...), 0
			for n := 0; n < c.rounds && both == 0; n++ {
				if r.round() {
					both++
				}
			}
			assert.Equal(t, both, min(len(c.change), 1), "rounds in which two were in at once")
		})
	}
}

// race is a process of the other client, and a locker of ours.
type race struct {
	*site
	ours   *replock.Locker
	in     io.Writer
	out    *json.Decoder
	counts map[string]count // by client and mode
}

type count struct{ in, tried int }

// turn is one attempt to take a lock, at a time of the clock since boot.
type turn struct {
	Mode string
	At   time.Duration
}

// newRace starts the other client, with parts of its text replaced.
func newRace(t *testing.T, change ...string) *race {
	s := &site{t: t, dir: t.TempDir()}
	s.repo, s.backend = s.path("repo"), directory{s}
	s.mkdir("repo")
	text := read(t, secondClient)
	for n := 0; n < len(change); n += 2 {
		assert.That(t, strings.Count(text, change[n]) == 1, "%s has %q %d times", secondClient, change[n], strings.Count(text, change[n]))
	}
	s.write("client.py", strings.NewReplacer(change...).Replace(text))
	s.write("racer.py", read(t, "protocol/racer.py"))
	cmd := exec.Command("python3", s.path("racer.py"), s.repo)
	in, err := cmd.StdinPipe()
	assert.OK(t, err)
	out, err := cmd.StdoutPipe()
	assert.OK(t, err)
	r := &race{site: s, ours: newLocker(t, s.repo, ""), in: in, out: json.NewDecoder(bufio.NewReader(out)), counts: map[string]count{}}
	var stderr lockedBuffer
	cmd.Stderr = &stderr
	assert.OK(t, cmd.Start())
	t.Cleanup(func() {
		in.Close()
		assert.That(t, cmd.Wait() == nil, "the other client: %v: %s", cmd.ProcessState, &stderr)
	})
	return r
}

// round starts four attempts within some milliseconds, and reports whether two conflicting ones were
// successful. The locks are held until all attempts have ended.
func (r *race) round() (both bool) {
	r.t.Helper()
	start := clock.System{}.Elapsed() + 20*time.Millisecond
	turns := make([]turn, 4)
	for n := range turns {
		mode := []string{"shared", "exclusive"}[rand.IntN(2)]
		turns[n] = turn{mode, start + rand.N(8*time.Millisecond)}
	}
	line, err := json.Marshal(turns[:2])
	assert.OK(r.t, err)
	r.say(string(line))
	locks := r.take(turns[2:])
	var theirs struct {
		Held   []bool
		Errors []string
	}
	assert.OK(r.t, r.out.Decode(&theirs))
	assert.Equal(r.t, theirs.Errors, nil, "errors of the other client")
	in, alone := 0, false
	for n, turn := range turns {
		who, held := "ours", n >= 2 && locks[n-2] != nil
		if n < 2 {
			who, held = "theirs", theirs.Held[n]
		}
		c := r.counts[who+", "+turn.Mode]
		c.tried++
		if held {
			c.in++
			in++
			alone = alone || turn.Mode == "exclusive"
		}
		r.counts[who+", "+turn.Mode] = c
	}
	r.say("release")
	assert.OK(r.t, r.out.Decode(&struct{}{}))
	for _, k := range locks {
		if k != nil {
			assert.OK(r.t, k.Release(r.t.Context()))
		}
	}
	r.nothingLeft()
	return alone && in > 1
}

func (r *race) say(line string) {
	r.t.Helper()
	_, err := io.WriteString(r.in, line+"\n")
	assert.OK(r.t, err)
}

// take makes our attempts. A lock that was refused is nil.
func (r *race) take(turns []turn) []*replock.Lock {
	locks := make([]*replock.Lock, len(turns))
	var wg sync.WaitGroup
	for n, turn := range turns {
		wg.Go(func() {
			acquire := r.ours.TryShared
			if turn.Mode == "exclusive" {
				acquire = r.ours.TryExclusive
			}
			<-clock.System{}.After(turn.At - clock.System{}.Elapsed())
			k, err := acquire(r.t.Context(), "race")
			if err == nil {
				locks[n] = k
			} else if !errors.Is(err, replock.ErrHeld) {
				r.t.Errorf("ours: %v", err)
			}
		})
	}
	wg.Wait()
	return locks
}

// theirs starts the other client with a ticking command, and waits until that runs, or the client has ended.
func (s *site) theirs(mode, name string, flags ...string) *process {
	s.t.Helper()
	client, err := filepath.Abs(secondClient)
	assert.OK(s.t, err)
	args := append([]string{"-B", client, s.repo, mode, "--ttl", "10"}, flags...)
	p := s.run(exec.Command("python3", append(args, ticks(name)...)...))
	s.until("the other client to be in, or refused", func() bool { return p.ended() || len(s.times(name)) > 0 })
	return p
}

// TestProtocolHolder: a lock of the other client is held as one of ours, lasts through its refreshes, is free
// after a crash, and is lost in time. Each waits for the other's crash for a ttl.
func TestProtocolHolder(t *testing.T) {
	t.Run("holds", func(t *testing.T) {
		s := newSite(t)
		p := s.theirs("exclusive", "a")
		s.theirs("shared", "b").exits(75)
		s.start("backup", "true").exits(75)
		waits := s.start("prune", "--ttl", "10s", "--wait", "1h", "--", "touch", "after")
		time.Sleep(2 * ttl) // two refreshes of each
		assert.That(t, !p.ended() && !s.exists("after"), "it isn't held any more")
		p.end("a")
		waits.exits(0)
		s.nothingLeft()
	})
	t.Run("crashes", func(t *testing.T) {
		s := newSite(t)
		p := s.theirs("exclusive", "a")
		end := s.leased()
		p.signal(syscall.SIGKILL)
		s.touch("stop-a")
		in := s.freed(end.Add(time.Minute))
		assert.That(t, in.After(end), "passed %v too early", end.Sub(in))
		s.nothingLeft()
	})
	t.Run("waits for a crash of ours", func(t *testing.T) {
		s := newSite(t)
		p := s.hold("prune", "a", brief...)
		end := s.leased()
		p.signal(syscall.SIGKILL)
		b := s.theirs("exclusive", "b", "--wait", "600")
		assert.That(t, s.times("b")[0].After(end), "passed too early")
		b.end("b")
		s.nothingLeft()
	})
	t.Run("is stopped", func(t *testing.T) {
		s := newSite(t)
		p := s.theirs("exclusive", "a")
		p.signal(syscall.SIGSTOP)
		s.freed(s.leased().Add(time.Minute))
		next := s.hold("prune", "b")
		p.signal(syscall.SIGCONT)
		p.exits(79)
		s.start("backup", "true").exits(75)
		next.end("b")
		s.nothingLeft()
	})
}
