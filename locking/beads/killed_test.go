//go:build unix

package beads_test

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/repolock/repolock/internal/clock"
	"github.com/repolock/repolock/internal/test/beadsdaemon"
	"github.com/repolock/repolock/locking/beads"
)

// TestKilledHolder: the lock of another process is held while that process runs, or is stopped.
// Once it was killed, the next acquires the lock, and the daemon skips the database for it.
func TestKilledHolder(t *testing.T) {
	dir := filepath.Join(t.TempDir(), ".beads")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	out := make(chan line, 100)
	p := start(t, "holder", dir, out)
	if l := next(t, dir, out); l.text != "held" {
		t.Fatal(l.text)
	}
	b := client(t, dir, beads.Options{Holder: "next"})
	refused := func(when string) {
		t.Helper()
		if _, ok, err := b.TryLock(t.Context(), beads.Key, ttl); ok || err != nil {
			t.Errorf("%s: acquired %v, %v", when, ok, err)
		}
		if skip, holder, err := (beadsdaemon.Daemon{}).ShouldSkipDatabase(dir); !skip || holder != "repolock" || err != nil {
			t.Errorf("%s: the daemon: %v, %q, %v", when, skip, holder, err)
		}
	}
	refused("while it runs")
	if err := p.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	refused("while it is stopped")

	killed := clock.System{}.Elapsed()
	if err := p.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	if l := next(t, dir, out); l.text != "" {
		t.Fatal(l.text)
	}
	gone := clock.System{}.Elapsed()
	own, err := beads.New(dir, beads.Options{Holder: "next"}) // with the machine's clock
	if err != nil {
		t.Fatal(err)
	}
	h := acquire(t, own)
	t.Logf("after SIGKILL the process was waited for in %v, and the lock was acquired %v later",
		(gone - killed).Round(time.Microsecond), (clock.System{}.Elapsed() - gone).Round(time.Microsecond))
	if skip, holder, err := (beadsdaemon.Daemon{}).ShouldSkipDatabase(dir); !skip || holder != "next" || err != nil {
		t.Errorf("the daemon: %v, %q, %v", skip, holder, err)
	}
	if err := own.Release(t.Context(), h); err != nil {
		t.Error(err)
	}
}
