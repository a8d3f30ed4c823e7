package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/repolock/repolock/cmd/internal/session"
	"github.com/repolock/repolock/internal/clock"
	"github.com/repolock/repolock/internal/identity"
	"github.com/repolock/repolock/internal/procgroup/guard"
	"github.com/repolock/repolock/internal/test/assert"
)

func TestMain(m *testing.M) {
	patience = hang
	// The guards of these commands are this binary.
	if file, ok := strings.CutPrefix(os.Args[len(os.Args)-1], steppedGuard); ok {
		stepClock(file)
		guard.Main()
	}
	if slices.Equal(os.Args[1:], []string{"keeper"}) { // of an acquire in the process of the tests
		main()
	}
	testscript.Main(neutral{m}, commands)
}

var commands = map[string]func(){"repolock": func() {
	if file := os.Getenv(stepVariable); file != "" {
		stepClock(file)
	}
	main()
}, "ticker": ticker}

// ticker is a command that ticks until there is a file "end". It starts no other program, because a shell that starts a
// program by vfork(2) can't be stopped while the child is stopped before its exec.
func ticker() {
	must := func(err error) {
		if err != nil {
			panic(err)
		}
	}
	must(os.WriteFile("pid", fmt.Appendln(nil, os.Getpid()), 0o600))
	ticks, err := os.Create("ticks")
	must(err)
	for {
		if _, err := os.Stat("end"); err == nil {
			return
		}
		_, err := fmt.Fprintln(ticks)
		must(err)
		time.Sleep(100 * time.Millisecond)
	}
}

const (
	// stepVariable names a file that says how far the wall clock is ahead.
	stepVariable = "REPOLOCK_TEST_STEP"
	steppedGuard = "guard stepped by "
)

func stepClock(file string) {
	guard.Argument = steppedGuard + file
	clock.Wall = func() time.Time {
		text, _ := os.ReadFile(file)
		step, _ := time.ParseDuration(string(text))
		return time.Now().Add(step)
	}
}

// neutral removes the variables that would make these tests depend on the user and the
// machine. A test that needs a terminal sets TERM.
type neutral struct{ *testing.M }

func (n neutral) Run() int {
	for _, v := range os.Environ() {
		name, _, _ := strings.Cut(v, "=")
		prefix, _, _ := strings.Cut(name, "_")
		if slices.Contains([]string{"REPOLOCK", "AWS", "MINIO", "B2", "MC"}, prefix) ||
			slices.Contains([]string{"TERM", "COLUMNS", "LINES", "NO_COLOR", "XDG_CONFIG_HOME", "XDG_RUNTIME_DIR"}, name) {
			os.Unsetenv(name)
		}
	}
	os.Setenv("GORACE", atExit)
	os.Setenv("REPOLOCK_CONFIG", "")        // no file
	os.Setenv("XDG_CACHE_HOME", os.DevNull) // repolock remembers nothing there, and repeats hints that it shows once
	for _, name := range []string{"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "B2_APPLICATION_KEY_ID", "B2_APPLICATION_KEY"} {
		os.Setenv(name, "secret")
	}
	os.Setenv("AWS_EC2_METADATA_DISABLED", "true")
	become = func(args []string) (int, error) {
		if path, err := exec.LookPath(args[0]); err == nil {
			return 0, exec.Command(path, args[1:]...).Run() // beside this process
		}
		return session.RunUnlocked(args) // which fails
	}
	// These tests mostly wait, so they run in parallel.
	flag.Parse()
	if err := flag.Set("test.parallel", "32"); err != nil {
		panic(err)
	}
	return n.M.Run()
}

// atExit makes the race detector report at once at the end of a program. By default it waits a
// second, in each of the hundreds of programs that these tests run.
const atExit = "atexit_sleep_ms=0"

// hang is the longest wait for an event. Only a hang reaches it, however busy the machine is.
const hang = 10 * time.Minute

// call runs repolock, in this process if no command is run. repolock reaps the processes that its command leaves
// behind, and in this process would also reap the children of other tests.
func call(args ...string) (code int, stdout, stderr string) {
	if !slices.Contains(args, "--") || slices.Contains(args, "complete") {
		return callHere(args...)
	}
	var out, errs bytes.Buffer
	cmd := exec.Command("repolock", args...)
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil && cmd.ProcessState == nil {
		panic(err)
	}
	return cmd.ProcessState.ExitCode(), out.String(), errs.String()
}

// callHere runs repolock in this process, where it must not run a command.
func callHere(args ...string) (code int, stdout, stderr string) {
	var out, errs bytes.Buffer
	code = run(args, &out, &errs)
	return code, out.String(), errs.String()
}

// until waits until so returns true.
func until(t *testing.T, what string, so func() bool) {
	t.Helper()
	for end := time.Now().Add(hang); !so(); time.Sleep(20 * time.Millisecond) {
		assert.Need(t, !time.Now().After(end), "not within %v: %s", hang, what)
	}
}

func write(t *testing.T, name, content string) {
	t.Helper()
	assert.OK(t, os.MkdirAll(filepath.Dir(name), 0o700))
	assert.OK(t, os.WriteFile(name, []byte(content), 0o600))
}

// tree returns all files below a directory, with their sizes and beginnings.
func tree(t *testing.T, dir string) map[string]string {
	t.Helper()
	files := map[string]string{}
	err := filepath.WalkDir(dir, func(name string, d fs.DirEntry, err error) error {
		switch {
		case errors.Is(err, fs.ErrNotExist): // removed meanwhile
			return nil
		case err != nil || d.IsDir():
			return err
		case !d.Type().IsRegular(): // a keeper's socket
			files[strings.TrimPrefix(name, dir)] = d.Type().String()
			return nil
		}
		content, err := os.ReadFile(name)
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		files[strings.TrimPrefix(name, dir)] = fmt.Sprintf("%d %.100q", len(content), content)
		return err
	})
	assert.OK(t, err)
	return files
}

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
		Cmds: map[string]func(*testscript.TestScript, bool, []string){"code": code, "await": await, "empty": empty, "stale": stale, "aged": aged},
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

// aged FILE TIME dates a file this time ago.
func aged(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: aged file time")
	}
	age, err := time.ParseDuration(args[1])
	ts.Check(err)
	at := time.Now().Add(-age)
	ts.Check(os.Chtimes(ts.MkAbs(args[0]), at, at))
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
