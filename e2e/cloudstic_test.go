//go:build unix

package e2e

import (
	"strings"
	"testing"

	"github.com/repolock/repolock/internal/test/assert"
)

// standIn follows Cloudstic's lock protocol, by e2e/peers/cloudstic. A backup adds a snapshot to the list of all,
// and no other command changes anything.
const standIn = `
dir="${CLOUDSTIC_STORE#local:}"
run="echo ran cloudstic $*"
case "${CLOUDSTIC_PASSWORD:?}: $*" in
*": backup "*) lock=shared run="mkdir -p $dir/snapshot; touch $dir/snapshot/$$ $dir/index/packs; $run" ;;
*": restore "*) lock=shared ;;
*": prune" | *": forget "*" -prune") lock=exclusive ;;
*": init" | *": check" | *": forget "*) exec sh -c "$run" ;;
*) echo "$*: not known to the stand-in"; exit 64 ;;
esac
peer $lock "$dir" sh -c "$run" || exit 1`

// TestCloudstic runs docs/cloudstic.md with a stand-in for the program.
func TestCloudstic(t *testing.T) {
	p := newPage(t, "cloudstic.md")
	in(t, "peers/cloudstic", "go build -o "+p.path("bin")+"/peer .")
	p.program("cloudstic", standIn)
	p.at = `-r "$HOME/backups"`
	out := p.sh(p.Script())
	p.contains(out, "cloudstic restore -output")
	for command, n := range map[string]int{"cloudstic backup -": 2, "cloudstic forget -": 1} {
		assert.Equal(t, strings.Count(out, "ran "+command), n, "runs of %q in\n%s", command, out)
	}
	for _, command := range p.Crontab() {
		assert.Equal(t, p.sh(command), "", "what cron would mail")
	}
	p.contains(p.sh(`. "$HOME/backup.env"; ls "$HOME/backups/snapshot" | wc -l; cloudstic check`), "3\n", "ran cloudstic check")
	copied := p.sh(`tar -tf "$HOME/copy.tar"`)
	assert.That(t, strings.Contains(copied, "index/packs") && !strings.Contains(copied, "index/lock"), "the copy has a lock in it, or nothing: %s", copied)
	p.unlocked()
	p.contains(p.sh(`. "$HOME/backup.env"; repolock status -- cloudstic`), "no locks")
	p.ownLock(`"$HOME/backups"`)

	// A command that changes the repository waits until it can run alone.
	for _, line := range strings.Split(strings.ReplaceAll(p.Script()+strings.Join(p.Crontab(), "\n"), "\\\n", " "), "\n") {
		if strings.Contains(line, "-- cloudstic ") && !strings.Contains(line, "-- cloudstic restore") && !strings.Contains(line, "--wait ") {
			t.Errorf("not waiting: %s", line)
		}
	}
}

// ownLock checks that Cloudstic is refused while repolock holds the repository's own lock, also under that lock.
func (p *page) ownLock(repo string) {
	p.t.Helper()
	out := p.sh(`. "$HOME/backup.env"; export REPOLOCK_REPO=` + repo + `
		repolock run --exclusive --operation copy -- sh -c 'cloudstic backup -source "local:$HOME/documents" || echo "backup: $?"; cloudstic prune || echo "prune: $?"'
		repolock prune -- cloudstic prune || echo "in one place: $?"
		cloudstic prune && echo "and then it prunes"`)
	p.contains(out, "backup: 1\n", "prune: 1\n", "in one place: 1\n", "and then it prunes\n")
}
