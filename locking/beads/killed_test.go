//go:build unix

package beads_test

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"testing"

	"github.com/repolock/repolock/internal/test/beadsdaemon"
	"github.com/repolock/repolock/locking/beads"
)

// holderEnv names the directory whose lock this process is to hold until it is killed.
const holderEnv = "REPOLOCK_TEST_BEADS"

// TestKilledHolder: the lock of another process is held while that process runs. Once it was
// killed, the next acquires the lock, and the daemon skips the database for it.
func TestKilledHolder(t *testing.T) {
	if dir := os.Getenv(holderEnv); dir != "" {
		acquire(t, client(t, dir, beads.Options{}))
		fmt.Println("held")
		_, _ = os.Stdin.Read(make([]byte, 1))
		return
	}
	dir := t.TempDir()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), exe, "-test.run=^TestKilledHolder$")
	cmd.Env = append(os.Environ(), holderEnv+"="+dir)
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
	b := client(t, dir, beads.Options{Holder: "next"})
	if _, ok, err := b.TryLock(t.Context(), beads.Key, ttl); ok || err != nil {
		t.Errorf("while it runs: acquired %v, %v", ok, err)
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	h := acquire(t, b)
	if skip, holder, err := (beadsdaemon.Daemon{}).ShouldSkipDatabase(dir); !skip || holder != "next" || err != nil {
		t.Errorf("the daemon: %v, %q, %v", skip, holder, err)
	}
	if err := b.Release(t.Context(), h); err != nil {
		t.Error(err)
	}
}
