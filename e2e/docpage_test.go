//go:build unix && (programs || !minio)

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

	"github.com/repolock/repolock/internal/test/docblocks"
)

// page is a page's script, and the home that it is run in.
type page struct {
	*site
	docblocks.Page
}

// newPage returns a page of docs/, and a home with something to back up.
func newPage(t *testing.T, name string) *page {
	t.Helper()
	text, err := docblocks.Read("../docs/" + name)
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

// sh runs a script as cron would, with an almost empty environment.
func (p *page) sh(script string) string {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.t.Context(), 10*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "sh", "-euc", script)
	cmd.Dir = p.dir
	cmd.Env = append([]string{"HOME=" + p.dir, "PATH=" + p.path("bin") + ":" + bin + ":/usr/local/bin:/usr/bin:/bin", "TMPDIR=" + p.dir, "LC_ALL=C.UTF-8"}, p.env...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = 10 * time.Second // for processes that still have its output open
	out, err := cmd.CombinedOutput()
	if err != nil {
		p.t.Fatalf("%v\n%s\n%s", err, script, out)
	}
	return string(out)
}

// contains checks that the output has all of these texts.
func (p *page) contains(out string, wants ...string) {
	p.t.Helper()
	for _, want := range wants {
		if !strings.Contains(out, want) {
			p.t.Errorf("%q isn't in:\n%s", want, out)
		}
	}
}

// unlocked checks that no lock has left anything.
func (p *page) unlocked() {
	p.t.Helper()
	p.contains(p.sh(`. "$HOME/backup.env"; repolock status`), "no locks")
}
