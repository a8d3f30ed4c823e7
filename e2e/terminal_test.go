//go:build unix && programs && !minio

package e2e

import (
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"
)

const waits = "repolock run --exclusive --ttl 10s --wait forever -- echo done"

// span matches a time span in one unit or two.
const span = `(?:\d+[dhms]){1,2}`

// TestWaitingOnAScreen: one line shows the holders, until the lock is free.
func TestWaitingOnAScreen(t *testing.T) {
	s := newSite(t)
	holder := s.hold("backup", "a")
	w := s.window("waits", "bash")
	w.run("seq 25") // the screen is nearly full: tmux moves lines when it is empty
	w.shows("25\n" + ready + "$")
	w.run(waits)
	line := fmt.Sprintf(`^waiting %s for backup on \S+ \(pid %d, \S+\) for %[1]s, last seen (%[1]s ago|.*…)$`, span, holder.Process.Pid)
	w.shows(line)
	inPlace := func(pattern string) {
		t.Helper()
		for range 3 { // seconds later the line has changed, and is still the only one
			now := w.shows(pattern)
			w.shows("^waiting ")
			s.until("the line to be drawn again", hang, func() bool { return w.after() != now })
			if rows := strings.Join(w.rows(), "\n"); strings.Count(rows, "waiting ") != 1 {
				t.Errorf("the screen:\n%s", rows)
			}
		}
	}
	inPlace(line)

	w.tmux("resize-window", "-x", "40", "-y", "30")
	narrow := `^waiting ` + span + ` for backup on \S+.*…$`
	inPlace(narrow)
	for _, row := range w.rows()[len(w.rows())-2:] {
		if strings.Contains(row, "last seen") || len([]rune(row)) > 40 {
			t.Errorf("a row is %q", row)
		}
	}
	w.tmux("resize-window", "-x", "80", "-y", "30")
	inPlace(`^waiting ` + span + ` for backup on \S+ .*, last seen .*$`)

	// While it waits in the background the screen is the shell's.
	w.key("C-z")
	w.shows(`(?s)Stopped.*` + ready + `$`)
	w.run("bg")
	w.shows(ready + "$")
	w.tmux("send-keys", "-l", "echo half a line")
	time.Sleep(3 * time.Second)
	w.shows(ready + " echo half a line$")
	w.key("Enter")
	w.shows("\nhalf a line\n" + ready + "$")
	w.run("fg")
	w.shows("(?m)^waiting ")

	holder.end("a")
	got := w.shows(ready + "$")
	if strings.Contains(got, "waiting") || !strings.HasSuffix(got, "\ndone\n"+ready) {
		t.Errorf("when the lock is there the screen is\n%s", got)
	}
	if left := s.locks(); len(left) > 0 {
		t.Errorf("left: %q", left)
	}
}

// TestWaitingInBackground: a wait in the background leaves text alone that the user types to
// the shell, also when it ends.
func TestWaitingInBackground(t *testing.T) {
	s := newSite(t)
	holder := s.hold("backup", "a")
	w := s.window("waits", "bash")
	w.run(waits)
	w.shows("^waiting ")
	w.key("C-z")
	w.shows(`(?s)Stopped.*` + ready + `$`)
	w.run("bg")
	w.shows(ready + "$")
	w.tmux("send-keys", "-l", "half a line")
	w.shows("half a line$")
	holder.end("a")
	w.shows(ready + " half a linedone$")
}

// TestCtrlCWhileWaiting: Ctrl-C in a wait leaves nothing, on the screen or in the repository.
func TestCtrlCWhileWaiting(t *testing.T) {
	for shell := range shells {
		t.Run(shell, func(t *testing.T) {
			s := newSite(t)
			s.hold("backup", "a")
			held := len(s.locks())
			w := s.window("waits", shell)
			for _, line := range []string{waits, `sh -c "` + waits + `; echo next"`, `bash -c "` + waits + `; echo next"`} {
				w.run(line)
				w.shows("^waiting ")
				s.until("its place in the queue", hang, func() bool { return len(s.locks()) > held })
				w.key("C-c")
				w.shows("^repolock: error: interrupt; nothing was run\n+" + ready + "$")
				if left := s.locks(); len(left) != held {
					t.Errorf("left: %q", left)
				}
				w.run("echo code $?")
				w.shows("^code 130\n" + ready + "$")
				w.run(modes)
				w.shows(sane)
			}
		})
	}
}

// ticking waits until suspend's command ticks after this moment.
func (s *site) ticking() {
	s.t.Helper()
	now := time.Now()
	s.until("ticks", hang, func() bool { return s.last("ticks").After(now) })
}

// suspend runs a command whose ticks show when it runs, and types Ctrl-Z. (It isn't run by
// dash, which starts programs by vfork: if Ctrl-Z stops one before it is executed, dash
// doesn't stop.)
func (s *site) suspend(w *window, flags string) (pid int) {
	s.t.Helper()
	w.run("repolock run --exclusive --ttl 10s " + flags + " -- bash -c 'echo $$ >pid; while :; do date +%s%N >>ticks; sleep 0.1; done'")
	pid = s.pid("pid")
	s.ticking()
	w.key("C-z")
	w.shows(`(?s)Stopped.*` + ready + `$`)
	parent, stops := state(pid)
	if _, us := state(parent); !stops || !us {
		s.t.Errorf("stopped: the command %v, repolock %v", stops, us)
	}
	return pid
}

// gap returns the longest time in which a ticking command didn't run.
func gap(times []time.Time) (d time.Duration) {
	for i := range len(times) - 1 {
		d = max(d, times[i+1].Sub(times[i]))
	}
	return d
}

// TestSuspended: after Ctrl-Z the lock is held and refreshed if fg comes in time. If fg comes
// too late, the lock is resumed, unless another holder has had it: then the command never runs
// again.
func TestSuspended(t *testing.T) {
	t.Run("in time", func(t *testing.T) {
		s := newSite(t)
		w := s.window("shell", "bash")
		s.suspend(w, "")
		before := s.refreshed()
		time.Sleep(2 * time.Second)
		w.run("fg")
		s.ticking()
		s.until("a refresh", hang, func() bool { return s.refreshed() != before })
		time.Sleep(12 * time.Second) // longer than the lock would last without a refresh
		if code := s.start("prune", "--", "true").code(); code != 75 {
			t.Errorf("another exits with %d", code)
		}
		w.key("C-c")
		w.shows(ready + "$")
	})
	t.Run("too late, and no other came", func(t *testing.T) {
		s := newSite(t)
		w := s.window("shell", "bash")
		s.suspend(w, "")
		time.Sleep(12 * time.Second)
		fg := time.Now()
		w.run("fg")
		w.shows("the lock was resumed, and the command continued")
		s.ticking()
		if d := gap(s.times("ticks")); d < 10*time.Second {
			t.Errorf("it was stopped for %v, from before %v", d, fg)
		}
		w.key("C-c")
		w.shows(ready + "$")
		w.run("echo code $?")
		w.shows("^code 130\n")
	})
	t.Run("too late, and another came", func(t *testing.T) {
		s := newSite(t)
		w := s.window("shell", "bash")
		pid := s.suspend(w, "")
		s.freed(time.Now().Add(ttl + 5*time.Second))
		ticks := len(s.times("ticks"))
		w.run("fg")
		w.shows("(?s)lost.*" + ready + "$")
		w.run("echo code $?")
		w.shows("^code 79\n")
		s.until("its end", hang, func() bool { return ended(pid) })
		if n := len(s.times("ticks")); n != ticks {
			t.Errorf("it ran %d times more", n-ticks)
		}
		w.run(modes)
		w.shows(sane)
	})
}

// refreshed returns the time of the last refresh, from the lock's flag.
func (s *site) refreshed() string {
	s.t.Helper()
	out := s.start("--json", "status")
	out.code()
	return regexp.MustCompile(`"last_heartbeat_at": ".*"`).FindString(out.stderr.String())
}

// TestWatchOnAScreen: status --watch follows a lock that comes and goes, in place.
func TestWatchOnAScreen(t *testing.T) {
	s := newSite(t)
	w := s.window("watch", "bash")
	w.run("repolock status --watch --interval 200ms")
	none := `^\d{4}-\d\d-\d\d \d\d:\d\d:\d\dZ  \S+\nno locks$`
	w.shows(none)
	holder := s.hold("backup", "a")
	one := `^\d{4}-\S+ \S+Z  \S+\nVERDICT .*\nlive +shared +backup .*`
	w.shows(one)
	w.tmux("resize-window", "-x", "40", "-y", "30")
	w.s.until("a narrow table", hang, func() bool {
		screen := w.screen()
		return strings.Count(screen, "VERDICT") == 1 && strings.Count(screen, "backup") == 1 && strings.Contains(screen, "…")
	})
	w.tmux("resize-window", "-x", "100", "-y", "30")
	w.key("C-z")
	w.s.until("a prompt", hang, func() bool { return strings.HasSuffix(w.screen(), ready) })
	w.run("bg")
	w.shows(ready + "$")
	time.Sleep(time.Second)
	w.shows(ready + "$")
	w.run("fg")
	w.shows(`(?m)^VERDICT .*\nlive +shared +backup .*`)
	holder.end("a")
	w.shows(`\d{4}-\d\d-\d\d \d\d:\d\d:\d\dZ  \S+\nno locks$`)
	w.key("C-c")
	w.shows(ready + "$")
	if n := strings.Count(w.after(), "no locks"); n != 1 {
		t.Errorf("the screen:\n%s", w.after())
	}
	w.run("echo code $?")
	w.shows("^code 130\n" + ready + "$")
	w.run(modes)
	w.shows(sane)
}

// TestNoEscapes: repolock prints only text if the terminal doesn't understand escape
// sequences, or if the output is no terminal. It never prints colours.
func TestNoEscapes(t *testing.T) {
	for _, c := range []struct {
		name, prefix, suffix string
		erases               bool
	}{
		{"terminal", "", "", true},
		{"NO_COLOR", "NO_COLOR=1 ", "", true},
		{"dumb", "TERM=dumb ", "", false},
		{"unknown", "env -u TERM ", "", false},
		{"pipe", "", " 2>&1 | cat", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newSite(t)
			holder := s.hold("backup", "a")
			w := s.window("bytes", "dash")
			shown := w.record()
			w.run(c.prefix + waits + c.suffix)
			w.shows("waiting .*backup on ")
			time.Sleep(2 * time.Second)
			holder.end("a")
			w.shows("done\n" + ready + "$")
			w.run(c.prefix + "repolock status --watch --interval 100ms" + c.suffix)
			w.shows("no locks")
			time.Sleep(time.Second)
			w.key("C-c")
			w.shows(ready + "$")
			w.run(c.prefix + "repolock status --nonsense" + c.suffix)
			w.shows("(?s)error: .*" + ready + "$")
			w.run(c.prefix + "repolock version" + c.suffix)
			w.shows("(?s)repolock.*" + ready + "$")
			raw := shown()
			if !strings.Contains(raw, "done") {
				t.Fatalf("recorded: %q", raw)
			}
			if strings.Contains(raw, "\x1b") != c.erases {
				t.Errorf("escape sequences: %v: %q", !c.erases, raw)
			}
			if sgr := regexp.MustCompile("\x1b\\[[0-9;]*m").FindString(raw); sgr != "" {
				t.Errorf("colours: %q", sgr)
			}
		})
	}
}
