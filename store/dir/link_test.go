package dir

import (
	"errors"
	"os"
	"runtime"
	"testing"

	"github.com/repolock/repolock/store"
)

func inRoot(t *testing.T) *directory {
	t.Helper()
	path := t.TempDir()
	root, err := os.OpenRoot(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { root.Close() })
	if err := root.WriteFile("temp", []byte("body"), 0o600); err != nil {
		t.Fatal(err)
	}
	return &directory{root, path}
}

// TestLinkAnsweredTwice: an NFS server's answer is lost, and the link that the client then
// requests again is its own.
func TestLinkAnsweredTwice(t *testing.T) {
	root := inRoot(t)
	if err := root.Link("temp", "k"); err != nil {
		t.Fatal(err)
	}
	if err := link(root, "temp", "k"); err != nil {
		t.Errorf("its own: %v", err)
	}
	if err := root.root.WriteFile("temp", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := link(root, "temp", "k"); !errors.Is(err, store.ErrPrecondition) {
		t.Errorf("another's: %v", err)
	}
}

// TestRenameNoReplace covers file systems without hard links. A test can't have a real one.
func TestRenameNoReplace(t *testing.T) {
	root := inRoot(t)
	err := renameNoReplace(root, "temp", "k")
	if runtime.GOOS != "linux" && runtime.GOOS != "darwin" {
		if !errors.Is(err, store.ErrConditionUnsupported) {
			t.Error(err)
		}
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	if err := root.root.WriteFile("temp", []byte("another"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := renameNoReplace(root, "temp", "k"); !errors.Is(err, store.ErrPrecondition) {
		t.Error(err)
	}
	if body, err := root.root.ReadFile("k"); err != nil || string(body) != "body" {
		t.Errorf("%q, %v", body, err)
	}
}
