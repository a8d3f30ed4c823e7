//go:build unix

package main

import (
	"errors"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/repolock/repolock/internal/procgroup/starter"
)

// TestStarterIsEarly: a starter ends before package os is initialised, and with it nearly all
// other packages. That makes it quick.
func TestStarterIsEarly(t *testing.T) {
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(exe)
	cmd.Env = []string{starter.Variable + "=0 1", "GODEBUG=inittrace=1"}
	out, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != 1 {
		t.Errorf("it ended with %v", err)
	}
	if !strings.Contains(string(out), "init runtime @") || strings.Contains(string(out), "init os @") || strings.Contains(string(out), "/aws/") {
		t.Errorf("initialised before it:\n%s", out)
	}
}
