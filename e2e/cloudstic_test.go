//go:build unix

package e2e

import (
	"context"
	"crypto/rand"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/repolock/repolock/internal/clock"
	"github.com/repolock/repolock/internal/test/assert"
	"github.com/repolock/repolock/internal/test/cloudsticlock"
	"github.com/repolock/repolock/store"
	"github.com/repolock/repolock/store/open"
)

// TestCloudstic runs docs/cloudstic.md with a stand-in for the program.
func TestCloudstic(t *testing.T) {
	p := newPage(t, "cloudstic.md")
	self, err := os.Executable() // which is a cloudstic if it is called so
	assert.OK(t, err)
	p.mkdir("bin")
	assert.OK(t, os.Symlink(self, p.path("bin/cloudstic")))
	out := p.sh(p.Script())
	p.contains(out, "Cloudstic refuses to back up: 1", "Cloudstic refuses to prune: 1", "it is in its own way: 1", "cloudstic restore -output")
	for command, n := range map[string]int{"cloudstic backup -": 2, "cloudstic prune\n": 1, "cloudstic forget -": 1} {
		assert.Equal(t, strings.Count(out, "ran "+command), n, "runs of %q in\n%s", command, out)
	}
	for _, command := range p.Crontab() {
		assert.Equal(t, p.sh(command), "", "what cron would mail")
	}
	p.contains(p.sh(`. "$HOME/backup.env"; ls "$HOME/backups/snapshot" | wc -l; cloudstic check`), "3\n", "ran cloudstic check")
	copied := p.sh(`tar -tf "$HOME/copy.tar"`)
	assert.That(t, strings.Contains(copied, "index/packs") && !strings.Contains(copied, "index/lock"), "the copy has a lock in it, or nothing: %s", copied)
	p.unlocked()
	p.contains(p.sh(`. "$HOME/backup.env"; repolock --name cloudstic status`), "no locks")

	// A command that changes the repository runs alone, and waits until it can.
	for _, line := range strings.Split(strings.ReplaceAll(p.Script()+strings.Join(p.Crontab(), "\n"), "\\\n", " "), "\n") {
		if strings.Contains(line, "--name cloudstic") && strings.Contains(line, "-- cloudstic ") && !strings.Contains(line, "-- cloudstic restore") &&
			(!strings.Contains(line, " run --exclusive ") && !strings.Contains(line, " prune ") || !strings.Contains(line, "--wait ")) {
			t.Errorf("not alone, or not waiting: %s", line)
		}
	}
}

func init() { standIns["cloudstic"] = cloudstic }

// cloudstic follows Cloudstic's lock protocol. A backup adds a snapshot to the list of all, and no other
// command changes anything.
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
	l := &cloudsticlock.Locker{Store: st, Clock: clock.System{}, Holder: fmt.Sprintf("here (pid %d)", os.Getpid())}
	line := strings.Join(args, " ")
	take := func(context.Context, string) (*cloudsticlock.Lock, error) { return nil, nil }
	switch {
	case args[0] == "backup", args[0] == "restore":
		take = l.Shared
	case args[0] == "prune", args[0] == "forget" && strings.HasSuffix(line, " -prune"):
		take = l.Exclusive
	case !slices.Contains([]string{"init", "check", "forget"}, args[0]):
		return fmt.Errorf("%s: not known to the stand-in", line)
	}
	lock, err := take(ctx, args[0])
	if err != nil {
		return err
	}
	if lock != nil {
		defer lock.Release(ctx)
	}
	if args[0] == "backup" {
		for _, key := range []string{"snapshot/" + rand.Text(), "index/packs"} {
			if _, err := st.Put(ctx, key, []byte(line), store.PutOptions{}); err != nil {
				return err
			}
		}
	}
	fmt.Println("ran cloudstic", line)
	return nil
}
