//go:build unix

package main

import (
	"bytes"
	"strings"
	"testing"
)

// TestTokenThatGoesNowhere: acquire takes no lock for no process if stdout is the null device, or is
// closed: no one could release that lock. The lock of a process can be acquired so.
func TestTokenThatGoesNowhere(t *testing.T) {
	d := newDesk(t)
	for _, redirect := range []string{">&-", ">/dev/null"} {
		cmd := d.command("sh", "-c", `"$0" acquire --shared --for-pid none `+redirect, d.bin)
		var stderr bytes.Buffer
		cmd.Stderr = &stderr
		const says = "repolock: error: with --for-pid none the token is the only way to release the lock, and stdout goes nowhere\nrepolock: hint: no lock was taken; see repolock help acquire\n"
		if code := exitOf(t, cmd.Run()); code != exitUsage || stderr.String() != says {
			t.Errorf("%s: exit code %d\n%s", redirect, code, stderr.String())
		}
		if left := tree(t, d.repo); len(left) > 0 {
			t.Errorf("%s: a lock was taken: %v", redirect, left)
		}
	}
	cmd := d.command("sh", "-c", `"$0" acquire --shared --for-pid $$ >/dev/null`, d.bin)
	if out, err := cmd.CombinedOutput(); err != nil && !strings.Contains(string(out), "ended") {
		t.Errorf("for a process: %v\n%s", err, out)
	}
}
