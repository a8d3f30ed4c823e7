//go:build unix && minio

package e2e

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/repolock/repolock/replock"
)

// TestFiftyWaiters: fifty waiters behind a backup, 20 of them for the exclusive lock, all get
// in, in the order in which they came: the exclusive ones first, and each of them alone.
// Nothing is left.
func TestFiftyWaiters(t *testing.T) {
	const exclusive, shared = 20, 30
	s := onMinIO.on(onMinIO.shared(t)).site(t)
	first := s.hold("backup", "first")
	var waiters []*process
	wait := func(operation, mode string) {
		waiters = append(waiters, s.start(operation, "--wait", "forever", "--", "sh", "-c",
			fmt.Sprintf("echo in %s $$ >>log; sleep 0.1; echo out %s $$ >>log", mode, mode)))
	}
	l, err := replock.New(openStore(t, s.repo), replock.Options{})
	if err != nil {
		t.Fatal(err)
	}
	tickets := func(n int) bool {
		locks, err := l.Status(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return len(slices.DeleteFunc(locks, func(i replock.Info) bool { return i.State != replock.StateWaiting })) == n
	}
	for range exclusive {
		wait("prune", "exclusive")
	}
	s.until("the exclusive ones' tickets", hang, func() bool { return tickets(exclusive) })
	for range shared {
		wait("backup", "shared")
	}
	s.until("all tickets", hang, func() bool { return tickets(exclusive + shared) })
	time.Sleep(2 * time.Second) // it must stay so
	if !tickets(exclusive+shared) || s.exists("log") {
		t.Errorf("a holder is in: %q", s.left())
	}
	start := time.Now()
	first.end("first")
	for _, w := range waiters {
		if code := w.code(); code != 0 {
			t.Errorf("exit code %d:\n%s", code, w.stderr.String())
		}
	}
	t.Logf("all were in after %v", time.Since(start).Round(time.Second))

	raw, err := os.ReadFile(s.path("log"))
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(string(raw)), "\n")
	in := map[string]int{}
	var order []string
	for _, line := range lines {
		f := strings.Fields(line)
		switch f[0] {
		case "in":
			if in["exclusive"] > 0 || f[1] == "exclusive" && in["shared"] > 0 {
				t.Errorf("%s beside %v", line, in)
			}
			in[f[1]]++
			order = append(order, f[1])
		case "out":
			in[f[1]]--
		}
	}
	if len(order) != exclusive+shared || !slices.IsSorted(order) { // "exclusive" < "shared"
		t.Errorf("they got in in the order %v", order)
	}
	s.nothingLeft()
}
