//go:build linux

package procgroup

import (
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/repolock/repolock/internal/procgroup/guard"
)

// unguarded is a group whose guard was killed, and can't be replaced before "mend".
func unguarded(t *testing.T, k ticker, expiry string) *parent {
	t.Helper()
	p := start(t, concat(self("parent", "-badguard", "later", "-expiry", expiry, "--"), k.args()))
	p.tell("unpause", "<nil>") // it has answered
	k.runs()
	if err := unix.Kill(p.guard, unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	return p
}

// A group without a guard is stopped until there is one, also if another
// process continues it.
func TestUnguardedIsStopped(t *testing.T) {
	for _, expiry := range []string{"stop", "kill"} {
		k := newTicker(t)
		p := unguarded(t, k, expiry)
		if line := p.expect("interrupted "); !strings.HasPrefix(line, "interrupted "+ErrUnguarded.Error()) || !strings.HasSuffix(line, "no such file or directory false") {
			t.Error(line)
		}
		k.quiet(300 * time.Millisecond)
		if expiry == "stop" {
			if err := unix.Kill(-p.pgid, unix.SIGCONT); err != nil {
				t.Fatal(err)
			}
			time.Sleep(guard.StopInterval + 100*time.Millisecond)
			p.tell("signal 18", ErrUnguarded.Error())
			p.tell("unpause", ErrUnguarded.Error())
			p.tell("allow 1m", "<nil>")
			k.quiet(2 * time.Second)
		}

		p.tell("mend", "<nil>")
		p.want("interrupted " + ErrUnguarded.Error() + " true")
		k.runs()
		p.tell("unpause", "<nil>")

		// The new guard has all the state that it needs.
		p.tell("allow 1s", "<nil>")
		p.signal(unix.SIGSTOP)
		k.quiet(200 * time.Millisecond)
	}
}

// Guards that start and die at once do not count.
func TestUnguardedByGuardsThatDie(t *testing.T) {
	k := newTicker(t)
	p := start(t, concat(self("parent", "-badguard", "dies", "--"), k.args()))
	p.tell("unpause", "<nil>")
	if err := unix.Kill(p.guard, unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	p.want("interrupted " + ErrUnguarded.Error() + ": " + errSilent.Error() + " false")
	k.quiet(time.Second)
	p.tell("mend", "<nil>")
	k.runs()
}

// With the Expiry Nothing the group runs on, and Interrupted is called.
func TestUnguardedRunsOn(t *testing.T) {
	k := newTicker(t)
	p := unguarded(t, k, "nothing")
	p.expect("interrupted " + ErrUnguarded.Error())
	time.Sleep(time.Second)
	k.runs()
	p.tell("mend", "<nil>")
	p.want("interrupted " + ErrUnguarded.Error() + " true")
	k.runs()
}

// A paused group stays paused when there is a guard again, and continues with Unpause.
func TestUnguardedWhilePaused(t *testing.T) {
	k := newTicker(t)
	p := unguarded(t, k, "stop")
	p.tell("pause", "<nil>")
	p.expect("interrupted ")
	p.tell("mend", "<nil>")
	p.want("interrupted " + ErrUnguarded.Error() + " true")
	k.quiet(300 * time.Millisecond)
	p.tell("unpause", "<nil>")
	k.runs()
}
