//go:build unix

package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/creack/pty"
)

// TestLockInDoubt: a lock counts as held if only one clock says that it has expired, and an
// acquirer without --wait can't watch it for its whole ttl. The message says that a person can
// end it.
func TestLockInDoubt(t *testing.T) {
	repo := t.TempDir()
	lock := filepath.Join(repo, "index", "lock.intent", "x")
	write(t, lock, `{"operation":"prune","holder":"far","expires_at":"2100-01-01T00:00:00Z","id":"0123","ttl_seconds":86400}`)
	old := time.Now().Add(-48 * time.Hour)
	if err := os.Chtimes(lock, old, old); err != nil {
		t.Fatal(err)
	}
	bin, err := exec.LookPath("repolock") // testscript.Main put it there
	if err != nil {
		t.Fatal(err)
	}
	repolock := func(args ...string) (code int, said string) {
		cmd := exec.Command(bin, append([]string{"-r", repo}, args...)...)
		out, err := cmd.CombinedOutput()
		if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) {
			t.Fatal(err)
		}
		return cmd.ProcessState.ExitCode(), string(out)
	}
	for _, wait := range []string{"0s", "1s"} {
		code, said := repolock("prune", "--wait", wait, "--", "true")
		for _, want := range []string{"prune on far, last seen ", "perhaps stale", "repolock break-lock --stale", "--wait 24h1m "} {
			if code != exitHeld || !strings.Contains(said, want) {
				t.Errorf("%d, without %q: %s", code, want, said)
			}
		}
	}
	code, said := repolock("break-lock", "--stale", "--yes")
	if _, err := os.Stat(lock); err != nil || code != 0 || !strings.Contains(said, "left alone: prune on far, ") {
		t.Errorf("%d, %v: %s", code, err, said)
	}

	cmd := exec.Command(bin, "-r", repo, "break-lock", "--stale")
	terminal, err := pty.Start(cmd)
	if err != nil {
		t.Fatal(err)
	}
	defer terminal.Close()
	if _, err := fmt.Fprintln(terminal, "y"); err != nil {
		t.Fatal(err)
	}
	var shown strings.Builder
	buf := make([]byte, 1024)
	for n := 0; err == nil; n, err = terminal.Read(buf) {
		shown.Write(buf[:n])
	}
	if err := cmd.Wait(); err != nil || !strings.Contains(shown.String(), "doubtful") {
		t.Errorf("%v: %s", err, shown.String())
	}
	if code, said := repolock("prune", "--", "true"); code != 0 {
		t.Errorf("after break-lock --stale: %d: %s", code, said)
	}
}
