//go:build unix && programs

package e2e

import (
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/repolock/repolock/internal/text"
)

// These tests run the commands of docs/ for other backup programs unchanged, with the real
// programs.

func TestRestic(t *testing.T) {
	p := newPage(t, "restic.md")
	p.restic(p.Script())
}

// restic runs docs/restic.md, with its script.
func (p *page) restic(script string) {
	p.t.Helper()
	p.contains(p.run(script), "the prune is refused: 75", "no errors were found", "dump.sql")
	if n := strings.Count(p.sh(`. "$HOME/backup.env"; restic list snapshots`), "\n"); n != 3 {
		p.t.Errorf("%d snapshots, want one of each place", n)
	}
	p.unlocked()
}

func TestRclone(t *testing.T) {
	p := newPage(t, "rclone.md")
	p.rclone(p.Script())
	if p.exists("remote/data/index") {
		t.Error("the locks were where rclone syncs")
	}
}

// rclone runs docs/rclone.md, with its script.
func (p *page) rclone(script string) {
	p.t.Helper()
	// A restore can run beside commands under a shared lock: it must change no file.
	for _, command := range append(p.Lines(), p.Crontab()...) {
		if strings.Contains(command, " backup ") && strings.Contains(command, "rclone copy") && !strings.Contains(command, "--immutable") {
			p.t.Errorf("%s can change files beside a restore", command)
		}
	}
	out := p.run(script)
	p.contains(out, "the sync is refused: 75", "0 differences found")
	is := p.sh(`. "$HOME/backup.env"; rclone lsf -R --files-only remote:`)
	for _, name := range []string{"documents/letter", "pictures/cat", "dumps/dump.sql"} {
		p.contains(is, name)
		if !p.exists("mirror/" + name) {
			p.t.Errorf("%s isn't mirrored", name)
		}
	}
	if strings.Contains(is, "draft") {
		p.t.Errorf("the deleted files are still there:\n%s", is)
	}
	p.unlocked()
}

func TestBorg(t *testing.T) {
	p := newPage(t, "borg.md")
	p.contains(p.run(p.Script()), "the restore is refused: 75")
	// Other machines use the same repository; one of them prunes last.
	for _, machine := range []string{"one", "two", "three", "one"} {
		for _, command := range p.Crontab() {
			p.sh("unshare --uts sh -euc 'hostname " + machine + `; eval "$0"' ` + text.Quote(command))
		}
	}
	is := p.sh(`. "$HOME/backup.env"; borg list`)
	for _, machine := range []string{"one", "two", "three"} {
		if !strings.Contains(is, machine+"-documents-") {
			t.Errorf("the archives of %s were pruned:\n%s", machine, is)
		}
	}
	is = p.sh(`. "$HOME/backup.env"; borg list --glob-archives "{hostname}-*"`)
	if strings.Count(is, "documents-") != 2 || strings.Count(is, "pictures-") != 1 || strings.Count(is, "dump-") != 1 {
		t.Errorf("archives, want the first and the last documents, and the others:\n%s", is)
	}
	p.unlocked()
}

// TestKopia builds kopia: no package of Debian's has it.
func TestKopia(t *testing.T) {
	p := newPage(t, "kopia.md")
	build := exec.CommandContext(t.Context(), "go", "build", "-C", "kopia", "-o", p.path("bin")+"/", "github.com/kopia/kopia")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	p.env = []string{"KOPIA_CHECK_FOR_UPDATES=false"}
	p.contains(p.run(p.Script()), "maintenance is refused: 75", "Finished full maintenance")
	p.contains(p.sh("kopia snapshot list --all"), "/documents", "/pictures", "/dumps")
	p.unlocked()
}

// run runs all blocks in one shell, and then the crontab entries; it returns their output.
func (p *page) run(script string) string {
	p.t.Helper()
	if len(script) == 0 || len(p.Crontab()) == 0 {
		p.t.Fatal("the page has nothing to run")
	}
	out := p.sh(script)
	for _, command := range p.Crontab() {
		out += p.sh(command)
	}
	return out
}
