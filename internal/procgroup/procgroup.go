// Package procgroup runs one command in a process group of its own. It can stop, continue
// and kill the group as a whole, and the group never runs longer than it is allowed to. A
// second process, the guard, stops or kills the group when its allowance ends, and kills it
// when our own process is gone. So this holds even while we are stopped or after we were
// killed. The guard also stops the group when the wall clock and the clock since boot part. A
// third process, the backstop, kills the group when our process and the guard were both killed.
//
// To the terminal and to the shell the command looks as if the shell had started it: it
// has the terminal when we have it, and Ctrl-Z, fg and bg work.
//
// A process that leaves the group (setsid, setpgid, the jobs of an interactive shell) or
// that runs as another user (setuid) is out of reach.
//
// Windows has no process groups: only the command's own process can be killed, nothing can
// be paused, and there is no guard.
package procgroup

import (
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"

	"github.com/repolock/repolock/internal/clock"
	"github.com/repolock/repolock/internal/fault"

	"github.com/repolock/repolock/internal/procgroup/guard"
)

// Command is what to run and how.
type Command struct {
	Args []string // the program and its arguments

	Stdin, Stdout, Stderr *os.File // nil: the null device

	Expiry Expiry // what happens when the allowance ends

	// Aftermath are arguments for our own program. If our process is gone, the guard executes it with them
	// when all processes of the group have ended. They have no line feeds. nil: it executes nothing.
	Aftermath []string

	// BeforeContinue is called when the shell has continued us after a stop by the
	// terminal (fg, bg), before the group continues. It can call Allow. If it returns
	// false, or if the allowance is over, the group stays stopped. nil means true.
	BeforeContinue func(*Group) bool

	// Waiting is called once if the command has ended and n processes of its group run
	// on; n is 0 on systems that can't count them. It must not block.
	Waiting func(n int)

	// Trouble is called with ErrExpired, ErrParted or ErrUnguarded if the group didn't
	// continue when the shell continued us. The group continues when that is over. It
	// must not block.
	Trouble func(error)

	// Suspended is called when the terminal, or a person by kill(1), stops the group and us,
	// shortly before we stop. It is called again, with over set, when the group may go on as
	// far as that stop is concerned: then it must neither block nor use the Group.
	Suspended func(over bool)

	// Interrupted is called when the group is stopped because of ErrParted or
	// ErrUnguarded, and again, with over set, when that is over. With the Expiry Nothing
	// the group isn't stopped, and Interrupted is called only because of ErrUnguarded. It
	// must not block.
	Interrupted func(why error, over bool)

	// RunsOn is called with the processes of the group that run on although the group was
	// stopped or killed, such as those of other users, which we may not signal. It is
	// called again, at growing intervals, while they run. pids is empty on systems that
	// don't list them. It must not block.
	RunsOn func(pids []int, killed bool)
}

// Expiry is what happens to the group when its allowance ends.
type Expiry = guard.Expiry

const (
	Stop    = guard.Stop
	Kill    = guard.Kill
	Nothing = guard.Nothing
)

// Allowance is the time until which a group may run.
type Allowance = guard.Allowance

// Allow returns an allowance for a lock that is seen now.
func Allow(until time.Duration) Allowance { return guard.Allow(until) }

// check is Allowance.Check with errors of this package.
func check(a Allowance, expiry Expiry, now clock.Reading) error {
	switch a.Check(expiry, now) {
	case nil:
		return nil
	case guard.ErrExpired:
		return ErrExpired
	default:
		return ErrParted
	}
}

// Executable is os.Executable. It fails with ErrNoExecutable.
func Executable() (string, error) {
	path, err := os.Executable()
	if err != nil {
		return "", fmt.Errorf("%w: %w", ErrNoExecutable, err)
	}
	return path, nil
}

// Status is how the command ended.
type Status struct {
	Code   int            // exit code, unless a signal killed it
	Signal syscall.Signal // signal that killed it, or 0
}

// ExitCode returns the status as a shell does in $?.
func (s Status) ExitCode() int {
	if s.Signal != 0 {
		return 128 + int(s.Signal)
	}
	return s.Code
}

func (s Status) String() string {
	if s.Signal != 0 {
		return fmt.Sprintf("killed by signal %d (%v)", int(s.Signal), s.Signal)
	}
	return fmt.Sprintf("exit status %d", s.Code)
}

var (
	// ErrNotFound is returned when the command doesn't exist; shells exit with 127.
	ErrNotFound error = fault.NoProgram
	// ErrNotExecutable is returned when the command can't be executed; shells exit with 126.
	ErrNotExecutable error = fault.NotExecutable
	// ErrNoExecutable is returned when the system doesn't name our own executable: without /proc, as
	// in a chroot.
	ErrNoExecutable error = fault.NoExecutable
	// ErrExpired is guard.ErrExpired. Package guard, which begins early, has no classes.
	ErrExpired error = fault.Expired
	// ErrParted is guard.ErrParted.
	ErrParted error = fault.Parted
	// ErrUnguarded is returned when the guard is gone and could not be replaced for a
	// second. The group is stopped until there is a guard, because it would run on if our
	// process were stopped now.
	ErrUnguarded = errors.New("no guard watches the command")
)
