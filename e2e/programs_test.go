//go:build unix && system

package e2e

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/repolock/repolock/internal/pages"
)

// These tests run what docs/ says of other backup programs, as it stands there, with the
// real programs.

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
		p.t.Errorf("what was deleted is still there:\n%s", is)
	}
	p.unlocked()
}

func TestBorg(t *testing.T) {
	p := newPage(t, "borg.md")
	p.contains(p.run(p.Script()), "the restore is refused: 75")
	is := p.sh(`. "$HOME/backup.env"; borg list`)
	if strings.Count(is, "documents-") != 2 || strings.Count(is, "pictures-") != 1 || strings.Count(is, "dump-") != 1 {
		t.Errorf("archives, want the first and the last documents, and the others:\n%s", is)
	}
	p.unlocked()
}

// TestKopia builds it: no package of Debian's has it.
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

// page is a page's script, and the home that it is run in.
type page struct {
	*site
	pages.Page
}

// newPage is one of docs/, and a home with something to back up.
func newPage(t *testing.T, name string) *page {
	t.Helper()
	text, err := pages.Read("../docs/" + name)
	if err != nil {
		t.Fatal(err)
	}
	t.Parallel()
	p := &page{&site{t: t, dir: t.TempDir()}, text}
	for name, text := range map[string]string{
		"documents/draft":  "a draft\n",
		"documents/letter": strings.Repeat("a letter\n", 1000),
		"pictures/cat":     strings.Repeat("a cat\n", 1000),
		"password":         "correct horse battery staple\n",
	} {
		if err := os.MkdirAll(filepath.Dir(p.path(name)), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(p.path(name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return p
}

// run runs all blocks in one shell, and then what is for cron; it returns what they said.
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

// sh runs a script as cron would, with next to nothing in its environment.
func (p *page) sh(script string) string {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.t.Context(), 3*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "sh", "-euc", script)
	cmd.Dir = p.dir
	cmd.Env = append([]string{"HOME=" + p.dir, "PATH=" + p.path("bin") + ":" + bin + ":/usr/local/bin:/usr/bin:/bin", "TMPDIR=" + p.dir, "LC_ALL=C.UTF-8"}, p.env...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = 10 * time.Second // for what still has its output open
	out, err := cmd.CombinedOutput()
	if err != nil {
		p.t.Fatalf("%v\n%s\n%s", err, script, out)
	}
	return string(out)
}

// contains wants all of these in what was said.
func (p *page) contains(out string, wants ...string) {
	p.t.Helper()
	for _, want := range wants {
		if !strings.Contains(out, want) {
			p.t.Errorf("%q isn't in:\n%s", want, out)
		}
	}
}

// unlocked: nothing is left of any lock.
func (p *page) unlocked() {
	p.t.Helper()
	p.contains(p.sh(`. "$HOME/backup.env"; repolock status`), "no locks")
}
