//go:build unix

package events

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
)

// TestMetricsThroughLink: the file that a link leads to is written, and the link stays.
func TestMetricsThroughLink(t *testing.T) {
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "collected"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "collected", "repolock.prom"), []byte("old"), 0o600); err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(dir, "link.prom")
	if err := os.Symlink("collected/repolock.prom", link); err != nil {
		t.Fatal(err)
	}
	m, err := NewMetrics(MetricsOptions{File: link, Locks: 1}, nil)
	if err != nil || m == nil {
		t.Fatal(err)
	}
	if to, err := os.Readlink(link); err != nil {
		t.Errorf("the link was replaced: %q %v", to, err)
	}
	if text, err := os.ReadFile(link); err != nil || !bytes.Contains(text, []byte("repolock_held")) {
		t.Errorf("%q %v", text, err)
	}
}
