//go:build unix && programs

package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/repolock/repolock/internal/test/docblocks"
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
	p.contains(p.run(script), "the prune is refused: 75", "no errors were found", "dump.sql", "restic's own lock is in the way: 1")
	if n := strings.Count(p.sh(`. "$HOME/backup.env"; restic list snapshots`), "\n"); n != 3 {
		p.t.Errorf("%d snapshots, want one of each place", n)
	}
	p.killedElsewhere()
	p.unlocked()
}

// killedElsewhere kills a restic of another machine: the page's line with restic unlock has to
// wait, and that with --remove-all doesn't.
func (p *page) killedElsewhere() {
	p.t.Helper()
	p.sh(`. "$HOME/backup.env"
		mkfifo "$HOME/elsewhere"
		unshare --map-root-user --uts sh -c 'hostname elsewhere; exec restic backup --stdin' <"$HOME/elsewhere" &
		exec 3>"$HOME/elsewhere"
		until restic -q list locks --no-lock | grep .; do sleep 0.1; done
		kill -9 $!`)
	for _, c := range []struct {
		unlock string
		code   int
	}{{"restic unlock &&", 1}, {"restic unlock --remove-all &&", 0}} {
		i := slices.IndexFunc(p.Lines(), func(l string) bool { return strings.Contains(l, c.unlock) })
		if i < 0 {
			p.t.Fatalf("the page has no line with %q", c.unlock)
		}
		p.contains(p.sh(`. "$HOME/backup.env"; `+p.Lines()[i]+` || code=$?; echo "exit code ${code:-0}"`), fmt.Sprintf("exit code %d\n", c.code))
	}
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

// TestReadme runs the README's first steps, from "../README.md", with the real programs.
func TestReadme(t *testing.T) {
	p := newSection(t, "On a directory")
	p.kopia()
	p.env = append(p.env, "KOPIA_PASSWORD=secret")
	p.contains(p.sh(p.Script()), "no locks", "snapshot", "Finished full maintenance")
	for _, name := range []string{"backups/data/pictures/cat", "restic/config", "kopia/kopia.repository.f"} {
		if !p.exists(name) {
			t.Errorf("there is no %s", name)
		}
	}
}

// newSection returns a section of the README, and a home with something to back up.
func newSection(t *testing.T, title string) *page {
	t.Helper()
	p := newPage(t, "../README.md")
	section, err := docblocks.ReadSection("../README.md", title)
	if err != nil {
		t.Fatal(err)
	}
	p.Page = section
	return p
}

// kopia builds kopia: no package of Debian's has it.
func (p *page) kopia() {
	p.t.Helper()
	build := exec.CommandContext(p.t.Context(), "go", "build", "-C", "kopia", "-o", p.path("bin")+"/", "github.com/kopia/kopia")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		p.t.Fatalf("%v\n%s", err, out)
	}
	p.env = append(p.env, "KOPIA_CHECK_FOR_UPDATES=false")
}

func TestKopia(t *testing.T) {
	p := newPage(t, "kopia.md")
	p.kopia()
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
