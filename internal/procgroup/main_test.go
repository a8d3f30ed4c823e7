package procgroup

import (
	"errors"
	"os"
	"os/signal"
	"runtime"
	"syscall"
	"testing"
	"time"

	"github.com/repolock/repolock/internal/clock"
)

// The test binary is also the guard, the program that runs a group, and what
// runs in it.
func TestMain(m *testing.M) {
	os.Setenv("GORACE", "atexit_sleep_ms=0") // or every program ends a second late
	if len(os.Args) > 1 {
		if program := programs[os.Args[1]]; program != nil {
			program(os.Args[2:])
			os.Exit(0)
		}
	}
	unignore()
	os.Exit(m.Run())
}

// unignore makes the tests' processes start with default signals, also under nohup or as a
// shell's background job: execve resets caught signals.
func unignore() {
	for _, sig := range []os.Signal{syscall.SIGHUP, syscall.SIGINT} {
		if signal.Ignored(sig) {
			signal.Notify(make(chan os.Signal, 1), sig)
		}
	}
}

var programs = map[string]func(args []string){
	"seven": func([]string) { os.Exit(7) },
	"sleep": func([]string) { time.Sleep(time.Hour) },
}

// self is the command line for one of the programs.
func self(program string, args ...string) []string {
	exe, err := os.Executable()
	if err != nil {
		panic(err)
	}
	return append([]string{exe, program}, args...)
}

// begin prepares and starts a command that can run for so long.
func begin(cmd Command, d time.Duration, keep ...syscall.Conn) (*Group, error) {
	p, err := Prepare(cmd)
	if err != nil {
		return nil, err
	}
	return p.Start(os.Environ(), Allow(clock.System{}.Elapsed()+d), keep...)
}

// These tests run on every system.
func TestEverywhere(t *testing.T) {
	begin := func(args []string) (*Group, error) { return begin(Command{Args: args}, time.Minute) }
	g, err := begin(self("seven"))
	must(t, err)
	<-g.Done()
	if s := g.Status(); s.ExitCode() != 7 {
		t.Errorf("status %v", s)
	}
	must(t, g.Close())

	g, err = begin(self("sleep"))
	must(t, err)
	if err := g.Pause(); runtime.GOOS == "windows" != errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("pause: %v", err)
	}
	must(t, g.Kill())
	<-g.Done()
	if s := g.Status(); s.ExitCode() == 0 {
		t.Errorf("killed, but %v", s)
	}
	must(t, g.Close())

	_, err = begin([]string{"no-such-command"})
	fails(t, err, ErrNotFound)
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func fails(t *testing.T, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Errorf("%v, want %v", err, want)
	}
}
