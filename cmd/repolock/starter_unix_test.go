//go:build unix

package main

import (
	"errors"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/repolock/repolock/internal/procgroup/starter"
)

// TestStarterIsEarly: a starter ends before package os is initialised, and with it nearly all
// other packages. That makes it quick.
func TestStarterIsEarly(t *testing.T) {
	done, code := initialised(t, []string{starter.Variable + "=0 1"})
	if code != 1 || !slices.Contains(done, "runtime") || slices.Contains(done, "os") {
		t.Errorf("it ended with %d; initialised before it: %q", code, done)
	}
}

// initialised runs this program, and returns the packages that are initialised until it ends,
// and its exit code.
func initialised(t *testing.T, env []string, args ...string) (done []string, code int) {
	t.Helper()
	for line := range strings.Lines(trace(t, &code, env, args...)) {
		if f := strings.Fields(line); len(f) > 2 && f[0] == "init" && strings.HasPrefix(f[2], "@") {
			done = append(done, f[1])
		}
	}
	return done, code
}

// trace runs this program, and returns what the runtime says of each package that it initialises.
func trace(t *testing.T, code *int, env []string, args ...string) string {
	t.Helper()
	exe, err := os.Executable()
	must(t, err)
	cmd := exec.Command(exe, args...)
	cmd.Env = append(env, "GODEBUG=inittrace=1")
	out, err := cmd.CombinedOutput()
	if exit, ok := errors.AsType[*exec.ExitError](err); err != nil && !ok {
		t.Fatal(err)
	} else if ok {
		*code = exit.ExitCode()
	}
	return string(out)
}
