// Package procgroup runs one command in a process group of its own. It can stop, continue and kill the
// group as a whole. The group never runs longer than its allowance, even if our own process is stopped or
// killed: a second process, the guard, stops or kills the group when the allowance ends, and kills it when
// our process has ended. The guard also stops the group after a step of the wall clock.
// A third process, the backstop, kills the group if our process and the guard are both killed.
//
// The command behaves as if the shell had started it: it has the terminal whenever the shell lets us
// have it, and Ctrl-Z, fg and bg work.
//
// The package can't signal a process that leaves the group (setsid, setpgid, the jobs of an interactive
// shell) or that runs as another user (setuid).
//
// Windows has no process groups. There, only the command's own process can be killed, nothing can be
// paused, and there is no guard.
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

// Command is a program with its arguments, and functions for its events. Each function can be nil. None may
// block, except BeforeContinue, and Suspended before a stop.
type Command struct {
	Args []string // the program and its arguments

	Stdin, Stdout, Stderr *os.File // nil: the null device

	Expiry Expiry

	// Aftermath are arguments for our own program, without line feeds. If our process dies, the guard
	// kills the group, and then executes our program with them. nil: it executes nothing.
	Aftermath []string

	// BeforeContinue is called before the group continues because the shell has continued us (fg, bg)
	// after a stop by the terminal. It can call Allow. If it returns false, or the allowance doesn't
	// hold, the group stays stopped.
	BeforeContinue func(*Group) bool

	// Waiting is called once if processes of the group still run after the command's end. n is their number, or
	// 0 on systems that can't count them.
	Waiting func(n int)

	// Trouble is called if the shell has continued us, and the group stays stopped because of ErrExpired,
	// ErrClockStepped or ErrUnguarded. The group continues when the reason is over.
	Trouble func(error)

	// Suspended is called shortly before we stop, when the terminal, or a person by kill(1), stops the
	// group and us. It is called again, with over set, when this stop has ended. That call must not use the
	// Group, whose mutex is locked.
	Suspended func(over bool)

	// Interrupted is called when the group is stopped because of ErrClockStepped or ErrUnguarded, and again,
	// with over set, when it may run. If Expiry is Nothing, the group runs on, and Interrupted is called only
	// because of ErrUnguarded.
	Interrupted func(why error, over bool)

	// Continued is called when another process has continued the group, which may not run (Pause, ErrExpired,
	// ErrClockStepped, ErrUnguarded). The group is stopped again at once. Continued is called again, with killed set,
	// when we have killed the group, because that has happened more than three times.
	Continued func(killed bool)

	// RunsOn is called with the processes of the group that still run after the group was stopped or
	// killed, such as processes of other users. It is called again, at growing intervals, while they run.
	// pids is empty on systems that don't list them.
	RunsOn func(pids []int, killed bool)
}

// Expiry is the guard's action when the allowance ends.
type Expiry = guard.Expiry

// The values of Expiry, which package guard documents.
const (
	Stop    = guard.Stop
	Kill    = guard.Kill
	Nothing = guard.Nothing
)

// Allowance is the time until which the group may run.
type Allowance = guard.Allowance

// Allow returns an allowance until a reading of clock.System{}.Elapsed, for a lock that is seen now.
func Allow(until time.Duration) Allowance { return guard.Allow(until) }

// check is Allowance.Check with the errors of this package.
func check(a Allowance, expiry Expiry, now clock.Reading) error {
	switch a.Check(expiry, now) {
	case nil:
		return nil
	case guard.ErrExpired:
		return ErrExpired
	default:
		return ErrClockStepped
	}
}

// CheckRoom returns ErrNoRoom if the limits of this process leave too few threads (ulimit -u, and pids.max of a control
// group) or too little address space (ulimit -v). Without the threads or the memory that it needs, Go's runtime ends the process with a stack trace.
// CheckRoom is a variable for tests.
var CheckRoom = checkRoom

// Executable returns the path of our own program, or ErrNoExecutable.
func Executable() (string, error) {
	path, err := os.Executable()
	if err != nil {
		return "", fmt.Errorf("%w: %w", ErrNoExecutable, err)
	}
	return path, nil
}

// Status is how the command ended.
type Status struct {
	Code   int            // the exit code, if Signal is 0
	Signal syscall.Signal // the signal that killed the command, or 0
}

// ExitCode returns the code that a shell has in $?.
func (s Status) ExitCode() int {
	if s.Signal != 0 {
		return 128 + int(s.Signal)
	}
	return s.Code
}

// String describes how the command ended, for a message.
func (s Status) String() string {
	if s.Signal != 0 {
		return fmt.Sprintf("killed by signal %d (%v)", int(s.Signal), s.Signal)
	}
	return fmt.Sprintf("exit status %d", s.Code)
}

var (
	// ErrNotFound is returned when the command doesn't exist. Shells exit with 127 then.
	ErrNotFound error = fault.NoProgram
	// ErrNotExecutable is returned when the command can't be executed. Shells exit with 126 then.
	ErrNotExecutable error = fault.NotExecutable
	// ErrNoRoom is returned by CheckRoom.
	ErrNoRoom error = fault.NoRoom
	// ErrNoExecutable is returned when the system doesn't show the path of our own program, as in a
	// chroot without /proc.
	ErrNoExecutable error = fault.NoExecutable
	// ErrExpired is guard.ErrExpired as a fault.Class: package guard is initialised before fault.
	ErrExpired error = fault.Expired
	// ErrClockStepped is guard.ErrClockStepped as a fault.Class.
	ErrClockStepped error = fault.ClockStepped
	// ErrUnguarded is returned when the guard has ended and could not be replaced within a second. The group
	// is stopped until it has a guard again. Otherwise, if our process were stopped, nothing would stop the
	// group in time.
	ErrUnguarded = errors.New("no guard watches the command")
)
