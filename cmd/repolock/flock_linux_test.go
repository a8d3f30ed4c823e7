package main

import (
	"bytes"
	"strings"
	"testing"
	"time"
)

// TestUnderFlock: repolock can't write to a repository whose directory another program has
// locked. The error names the program and says what to do.
func TestUnderFlock(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	var said string
	// On a very busy machine the store's message can come too late.
	for end := time.Now().Add(hang); time.Now().Before(end); {
		cmd := d.command("flock", d.repo, d.bin, "backup", "--ttl", "10s", "--", "echo", "ran")
		var out bytes.Buffer
		cmd.Stdout, cmd.Stderr = &out, &out
		if code := exitOf(t, cmd.Run()); code != exitFailed { // the directory is there
			t.Errorf("exit code %d", code)
		}
		if said = out.String(); strings.Contains(said, "ran\n") {
			t.Error("the command ran without a lock")
		}
		if strings.Contains(said, "the flock on "+d.repo+" is held by process ") &&
			strings.Contains(said, " (flock), so nothing can be written there: end that process, ") {
			return
		}
	}
	t.Errorf("it doesn't say who has the flock: %s", said)
}
