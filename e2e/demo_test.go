//go:build linux && programs && !minio

package e2e

import (
	"encoding/xml"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestDemo: the README's drawings can be recorded again. The recorder fails if a command of theirs
// doesn't end as it should.
func TestDemo(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if out, err := exec.CommandContext(t.Context(), "go", "run", "./demo", dir).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for name, texts := range map[string][]string{
		"demo.svg":  {"exit code 75", "waiting ", "pruned", "Killed", "free"},
		"night.svg": {"root@web", "root@db", "root@mail", "refused", "removed the stale lock"},
	} {
		for _, drawing := range []string{filepath.Join(dir, name), filepath.Join("../docs", name)} {
			raw, err := os.ReadFile(drawing)
			if err != nil {
				t.Fatal(err)
			}
			if len(raw) > 60<<10 {
				t.Errorf("%s has %d bytes", drawing, len(raw))
			}
			d := xml.NewDecoder(strings.NewReader(string(raw)))
			for err == nil {
				_, err = d.Token()
			}
			if !errors.Is(err, io.EOF) {
				t.Errorf("%s: %v", drawing, err)
			}
			for _, text := range texts {
				if !strings.Contains(string(raw), text) {
					t.Errorf("%s doesn't show %q", drawing, text)
				}
			}
		}
	}
}
