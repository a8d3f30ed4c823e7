//go:build unix && !e2e

package e2e

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/repolock/repolock/internal/clock"
	"github.com/repolock/repolock/internal/original"
	"github.com/repolock/repolock/store/open"
)

// TestCloudstic runs docs/cloudstic.md with a stand-in for the program.
func TestCloudstic(t *testing.T) {
	p := newPage(t, "cloudstic.md")
	p.standIn("cloudstic")
	out := p.run(p.Script())
	p.contains(out, "Cloudstic refuses to back up: 1", "Cloudstic refuses to prune: 1", "it is in its own way: 1", "cloudstic restore -output")
	for command, n := range map[string]int{"cloudstic backup -": 3, "cloudstic prune\n": 1, "cloudstic forget -": 2} {
		if got := strings.Count(out, "ran "+command); got != n {
			t.Errorf("%q was run %d times, want %d:\n%s", command, got, n, out)
		}
	}
	p.unlocked()
	p.contains(p.sh(`. "$HOME/backup.env"; repolock --name cloudstic status`), "no locks")
}

func init() { standIns["cloudstic"] = cloudstic }

// cloudstic keeps to Cloudstic's lock protocol, and does nothing but say that it ran.
func cloudstic(args []string) error {
	ctx := context.Background()
	dir, local := strings.CutPrefix(os.Getenv("CLOUDSTIC_STORE"), "local:")
	if !local || os.Getenv("CLOUDSTIC_PASSWORD") == "" {
		return fmt.Errorf("CLOUDSTIC_STORE or CLOUDSTIC_PASSWORD is missing")
	}
	st, err := open.Store(ctx, dir)
	if err != nil {
		return err
	}
	l := &original.Locker{Store: st, Clock: clock.System{}, Holder: fmt.Sprintf("here (pid %d)", os.Getpid())}
	line := strings.Join(args, " ")
	take := func(context.Context, string) (*original.Lock, error) { return nil, nil }
	switch {
	case args[0] == "init":
	case args[0] == "backup" || args[0] == "restore":
		take = l.Shared
	case args[0] == "prune" || args[0] == "forget" && strings.HasSuffix(line, " -prune"):
		take = l.Exclusive
	default:
		return fmt.Errorf("%s: not known to the stand-in", line)
	}
	lock, err := take(ctx, args[0])
	if err != nil {
		return err
	}
	if lock != nil {
		defer lock.Release(ctx)
	}
	fmt.Println("ran cloudstic", line)
	return nil
}
