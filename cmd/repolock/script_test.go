package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/repolock/repolock/internal/identity"
)

func TestScripts(t *testing.T) {
	t.Parallel()
	testscript.Run(t, testscript.Params{
		Dir:                 filepath.Join("testdata", "script"),
		RequireExplicitExec: true,
		Condition: func(name string) (bool, error) {
			if name != "machine-id" { // which containers needn't have
				return false, fmt.Errorf("unknown condition %q", name)
			}
			_, err := os.Stat("/etc/machine-id")
			return err == nil, nil
		},
		Setup: func(e *testscript.Env) error {
			e.Setenv("REPOLOCK_CONFIG", "")
			e.Setenv("XDG_CACHE_HOME", os.DevNull)
			e.Setenv("GORACE", atExit)
			e.Setenv("MUTANT_ON", os.Getenv("MUTANT_ON")) // of internal/test/mutants
			e.Setenv("REPOLOCK_REPO", filepath.Join(e.WorkDir, "repo"))
			if runtime.GOOS != "windows" {
				short, err := os.MkdirTemp("/tmp", "runtime") // the script's own directory can be too long for sockets
				if err != nil {
					return err
				}
				e.Defer(func() { os.RemoveAll(short) })
				e.Setenv("RUNTIME", short)
			}
			return os.Mkdir(filepath.Join(e.WorkDir, "repo"), 0o700)
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){"code": code, "await": await, "empty": empty, "stale": stale},
	})
}

// code N CMD… runs a command that must exit with N.
func code(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: code N command [args...]")
	}
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	err = ts.Exec(args[1], args[2:]...)
	got := 0
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		if got = exit.ExitCode(); got < 0 {
			ts.Fatalf("ended by a signal: %v", err)
		}
	} else if err != nil {
		ts.Fatalf("%v", err)
	}
	if got != want {
		ts.Fatalf("exit code %d, want %d", got, want)
	}
}

// empty DIR: there is no file in it, if it exists.
func empty(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: empty dir")
	}
	ts.Check(filepath.WalkDir(ts.MkAbs(args[0]), func(path string, entry fs.DirEntry, err error) error {
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return nil
		case err == nil && !entry.IsDir():
			return fmt.Errorf("%s is left", path)
		}
		return err
	}))
}

// await FILE waits until the file exists; ! await until it doesn't.
func await(ts *testscript.TestScript, neg bool, args []string) {
	for end := time.Now().Add(hang); ; time.Sleep(10 * time.Millisecond) {
		if _, err := os.Stat(ts.MkAbs(args[0])); (err == nil) != neg {
			return
		}
		if time.Now().After(end) {
			ts.Fatalf("waited too long for %s", args[0])
		}
	}
}

// stale FILE MODE writes a lock of this machine's last boot, which is certainly over: by the clock
// since boot, or, on a system that can't compare that, by its age. MODE is shared or exclusive.
func stale(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: stale file mode")
	}
	self := identity.Self()
	self.User = ""
	old := time.Now().Add(-48 * time.Hour)
	raw, err := json.Marshal(struct {
		Operation     string    `json:"operation"`
		Holder        string    `json:"holder"`
		AcquiredAt    time.Time `json:"acquired_at"`
		ExpiresAt     time.Time `json:"expires_at"`
		IsShared      bool      `json:"is_shared"`
		TTL           int       `json:"ttl_seconds"`
		RefreshedBoot int64     `json:"refreshed_boot_ns"`
		identity.Process
	}{"backup", "laptop (pid 1)", old, old, args[1] == "shared", 10, 1, self})
	ts.Check(err)
	file := ts.MkAbs(args[0])
	ts.Check(os.WriteFile(file, raw, 0o600))
	ts.Check(os.Chtimes(file, old, old))
}
