//go:build unix

package towerfleet

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/repolock/repolock/locking"
)

// holderEnv is the directory in which this process is to hold a lock until it is killed, and
// holderTTL the ttl of that lock.
const holderEnv, holderTTL = "REPOLOCK_TEST_TOWERFLEET", "REPOLOCK_TEST_TOWERFLEET_TTL"

// holdUntilKilled holds the lock n, with a heartbeat before it reports so.
func holdUntilKilled(t *testing.T, dir string) {
	ttl, err := time.ParseDuration(os.Getenv(holderTTL))
	if err != nil {
		t.Fatal(err)
	}
	b, err := New(dir, Options{Settle: -1, RequestID: "req_killed"})
	if err != nil {
		t.Fatal(err)
	}
	h, ok, err := b.TryLock(t.Context(), "n", ttl)
	if !ok || err != nil {
		t.Fatal(ok, err)
	}
	if err := b.Renew(t.Context(), h); err != nil && ttl > time.Minute {
		t.Fatal(err)
	}
	fmt.Println("held")
	_, _ = os.Stdin.Read(make([]byte, 1))
}

// killHolder starts a process that holds a lock, and kills it.
func killHolder(t *testing.T, dir string, ttl time.Duration, whileItLives func()) {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), exe, "-test.run=^TestKilledHolder$")
	cmd.Env = append(os.Environ(), holderEnv+"="+dir, holderTTL+"="+ttl.String())
	stdin, err := cmd.StdinPipe() // so that it ends with this process
	if err != nil {
		t.Fatal(err)
	}
	defer stdin.Close()
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if line, err := bufio.NewReader(stdout).ReadString('\n'); line != "held\n" {
		t.Fatalf("%q, %v", line, err)
	}
	whileItLives()
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
}

// TestKilledHolder: the lock of a process that was killed stays held until it is stale. Then it
// is refused without Force, and stolen with it; the killed request is in the event.
func TestKilledHolder(t *testing.T) {
	if dir := os.Getenv(holderEnv); dir != "" {
		holdUntilKilled(t, dir)
		return
	}
	w, by := &world{T: t, dir: filepath.Join(t.TempDir(), "locks")}, new(atomic.Int64)
	force := w.backend(Options{Force: true, Settle: -1, Clock: moved{by: by}})
	plain := w.backend(Options{Settle: -1, Clock: moved{by: by}})
	const ttl = 2 * time.Hour
	live := func() {
		t.Helper()
		for _, b := range []*Backend{force, plain} {
			if held := w.refused(b, "n"); held.Stale || held.record.RequestID != "req_killed" {
				t.Errorf("%v", held)
			}
		}
	}
	killHolder(t, w.dir, ttl, live)
	live() // no look at the pid frees it
	by.Store(int64(ttl / 2))
	live()
	by.Store(int64(ttl + 2*time.Second))
	text := w.read("n.lock")
	if held := w.refused(plain, "n"); !held.Stale || w.read("n.lock") != text || len(w.events) > 0 {
		t.Errorf("%v %v", held, w.events)
	}
	h := w.acquire(force, "n", ttl)
	if e := w.events[0].(Stolen); e.PreviousLock.RequestID != "req_killed" || len(w.events) != 2 {
		t.Errorf("%v", w.events)
	}
	if err := force.Release(t.Context(), h); err != nil || len(w.files()) > 0 {
		t.Errorf("%v %q", err, w.files())
	}
}

// TestKilledHolderIsWaitedOut: with the machine's clock, a killed holder's lock of the shortest
// ttl becomes free for Force after the ttl, and not before.
func TestKilledHolderIsWaitedOut(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "locks")
	const ttl = time.Second
	began := time.Now()
	var killed time.Time
	killHolder(t, dir, ttl, func() { killed = time.Now() })
	b, err := New(dir, Options{Force: true, Settle: -1})
	if err != nil {
		t.Fatal(err)
	}
	for {
		h, err := b.Acquire(t.Context(), "n", ttl)
		var held *HeldError
		if errors.As(err, &held) {
			time.Sleep(10 * time.Millisecond)
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		if after := time.Since(began); after < ttl {
			t.Errorf("stolen %v after the start of its holder, and its ttl is %v", after, ttl)
		}
		t.Logf("stolen %v after the kill, ttl %v", time.Since(killed).Round(time.Millisecond), ttl)
		if err := b.Release(t.Context(), h); err != nil && !errors.Is(err, locking.ErrLost) {
			t.Error(err)
		}
		break
	}
	if files, err := filepath.Glob(filepath.Join(dir, "*")); err != nil || len(files) > 0 {
		t.Errorf("%v %s", err, strings.Join(files, " "))
	}
}
