//go:build linux

package procgroup

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/repolock/repolock/internal/procgroup/guard"
)

// With a real guard and a real command, in which the wall clock alone is the test's.
func TestClocksPart(t *testing.T) {
	for _, expiry := range []string{"stop", "kill"} {
		k := newTicker(t)
		wall := filepath.Join(t.TempDir(), "wall")
		step := func(d time.Duration) {
			if err := os.WriteFile(wall+".new", []byte(d.String()), 0o600); err != nil {
				t.Fatal(err)
			}
			if err := os.Rename(wall+".new", wall); err != nil {
				t.Fatal(err)
			}
		}
		p := start(t, concat(self("parent", "-stepped", wall, "-expiry", expiry, "--"), k.args()))
		k.runs()
		step(71 * time.Second)
		p.want("interrupted " + ErrParted.Error() + " false")
		k.quiet(300 * time.Millisecond)

		// A SIGCONT doesn't undo that.
		if err := unix.Kill(-p.pgid, unix.SIGCONT); err != nil {
			t.Fatal(err)
		}
		time.Sleep(guard.StopInterval + 100*time.Millisecond)
		p.tell("signal 18", ErrParted.Error())
		p.tell("unpause", ErrParted.Error())
		k.quiet(300 * time.Millisecond)

		p.tell("allow 1m", "<nil>")
		p.want("interrupted " + ErrParted.Error() + " true")
		k.runs()
		step(-time.Hour)
		p.want("interrupted " + ErrParted.Error() + " false")
		k.quiet(300 * time.Millisecond)
		p.tell("allow 1m", "<nil>")
		k.runs()
		p.kill()
		p.want("done killed by signal 9 (killed)")
	}
}

// Clocks that part while the command starts: it doesn't begin.
func TestClocksPartBeforeTheStart(t *testing.T) {
	p, err := Prepare(Command{Args: []string{"true"}})
	if err != nil {
		t.Fatal(err)
	}
	a := Allow(elapsed() + time.Minute)
	a.Seen.Wall += 3 * time.Second
	if _, err := p.Start(os.Environ(), a); err != ErrParted {
		t.Error(err)
	}
}

// We refuse to continue the group in the moment before the guard notices. It still goes on
// after a look at the lock.
func TestContinuesWhatItRefused(t *testing.T) {
	k := newTicker(t)
	p := start(t, concat(self("parent", "--"), k.args()))
	k.runs()
	p.tell("unpause", "<nil>") // no answer is on its way
	p.tell("pause", "<nil>")
	p.tell("refused", ErrParted.Error())
	k.quiet(100 * time.Millisecond)
	p.tell("allow 1m", "<nil>")
	k.runs()
}
