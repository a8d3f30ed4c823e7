package main

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/repolock/repolock/cmd/internal/session"
	"github.com/repolock/repolock/internal/identity"
	"github.com/repolock/repolock/internal/test/timens"
)

// TestLateAnswer: an answer that is read after the lease has ended doesn't count, even if the
// keeper's clock since boot differs from ours.
func TestLateAnswer(t *testing.T) {
	for _, c := range []struct {
		namespace string
		deadline  time.Duration
		read      time.Duration // asked at 100 s
		over      bool
	}{
		{"time:[1]", 150 * time.Second, 149 * time.Second, false},
		{"time:[1]", 150 * time.Second, 150 * time.Second, true},
		{"time:[2]", 9000 * time.Second, 139 * time.Second, false},
		{"time:[2]", 9000 * time.Second, 140 * time.Second, true}, // its clock is ahead of ours
		{"time:[2]", 50 * time.Second, 139 * time.Second, false},  // behind
		{"", 9000 * time.Second, 140 * time.Second, true},
		{"", 50 * time.Second, 139 * time.Second, false},
	} {
		a := session.Answer{Holding: session.Holding{Deadline: c.deadline, LeftSeconds: 40}, TimeNamespace: c.namespace}
		if got := a.Over(100*time.Second, c.read, "time:[1]"); got != c.over {
			t.Errorf("%+v: over %v", c, got)
		}
	}
	if a := (session.Answer{Holding: session.Holding{Deadline: 9000 * time.Second, LeftSeconds: 40}}); !a.Over(100*time.Second, 140*time.Second, "") {
		t.Error("two unknown namespaces are taken for the same")
	}
}

// TestTimeNamespaces: in another time namespace than the keeper's, check, renew and release
// work as elsewhere, and break-lock --dead leaves the live lock alone.
func TestTimeNamespaces(t *testing.T) {
	if identity.Self().TimeNamespace == "none" {
		return // the kernel has no time namespaces
	}
	there := timens.Command(t, 100_000*time.Second)
	d := newDesk(t)
	h := d.acquire("--shared")
	run := func(args ...string) string {
		t.Helper()
		cmd := d.command(there[0], append(append(there[1:], d.bin, "--json"), args...)...)
		out, err := cmd.Output()
		if err != nil {
			t.Errorf("%s: %v: %s", args[0], err, out)
		}
		return string(out)
	}
	var s jsonStatus
	if err := json.Unmarshal([]byte(run("status")), &s); err != nil || len(s.Locks) != 1 || s.Locks[0].ProcessGone {
		t.Errorf("status: %v %+v", err, s)
	}
	run("break-lock", "--dead", "--yes")
	run("check", h.Token)
	run("renew", h.Token)
	run("release", h.Token)
	d.free()
}
