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
	"github.com/repolock/repolock/internal/test/assert"
)

// The test binary is also the guard, the program that runs a group, and the command in the group.
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

// unignore makes the tests' processes start with default signals, even under nohup or in a shell's
// background job: execve resets caught signals.
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

func self(program string, args ...string) []string {
	exe, err := os.Executable()
	if err != nil {
		panic(err)
	}
	return append([]string{exe, program}, args...)
}

// begin prepares and starts a command with an allowance of d.
func begin(cmd Command, d time.Duration, keep ...syscall.Conn) (*Group, error) {
	p, err := Prepare(cmd)
	if err != nil {
		return nil, err
	}
	return p.Start(os.Environ(), always(Allow(clock.System{}.Elapsed()+d)), keep...)
}

// always returns a function for Prepared.Start.
func always(a Allowance) func() Allowance { return func() Allowance { return a } }

// TestEverywhere runs on every system: a command ends, is killed, or isn't found.
func TestEverywhere(t *testing.T) {
	begin := func(args []string) (*Group, error) { return begin(Command{Args: args}, time.Minute) }
	g, err := begin(self("seven"))
	assert.OK(t, err)
	<-g.Done()
	assert.Equal(t, g.Status().ExitCode(), 7)
	assert.OK(t, g.Close())

	g, err = begin(self("sleep"))
	assert.OK(t, err)
	err = g.Pause()
	assert.Equal(t, errors.Is(err, errors.ErrUnsupported), runtime.GOOS == "windows", "pause: %v", err)
	assert.OK(t, g.Kill())
	<-g.Done()
	s := g.Status()
	assert.That(t, s.ExitCode() != 0, "killed, but %v", s)
	assert.OK(t, g.Close())

	_, err = begin([]string{"no-such-command"})
	assert.Is(t, err, ErrNotFound)
}
