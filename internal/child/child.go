// Package child runs one command in a process group of its own, which can be
// stopped, continued and killed as a whole, and which never runs beyond the
// time until which it was allowed to: a second process, the guard, stops or
// kills the group when its allowance ends, and kills it when our own process is
// gone, so that this holds even while we are stopped or after we were killed. It
// also stops the group while wall clock and clock since boot have parted.
//
// To the terminal and to the shell the command looks as if it had been started
// directly: it has the terminal when we have it, and Ctrl-Z, fg and bg work.
//
// A process that leaves the group (setsid, setpgid, the jobs of an interactive
// shell) or that runs as another user (setuid) is out of reach.
//
// On Windows there are no process groups: only the command's own process can be
// killed, nothing can be paused, and there is no guard.
package child

import (
	"errors"
	"fmt"
	"os"
	"syscall"
)

// Command says what to run and how.
type Command struct {
	Args []string // the program and its arguments

	Stdin, Stdout, Stderr *os.File // nil: the null device

	Expiry Expiry // what happens when the allowance ends

	// BeforeContinue is asked when the shell has continued us after a stop by
	// the terminal (fg, bg), before the group goes on. It may call Allow. If it
	// says no, or if the allowance is over, the group stays stopped. nil: yes.
	BeforeContinue func(*Group) bool

	// Waiting is told once if the command has ended and n processes of its
	// group go on; n is 0 where they can't be counted. It must not block.
	Waiting func(n int)

	// Trouble is told why the group didn't go on when the shell continued us:
	// ErrExpired, ErrParted or ErrUnguarded. It goes on when that is over. It must
	// not block.
	Trouble func(error)

	// Interrupted is told when the group is stopped because of ErrParted or
	// ErrUnguarded, and once more, with over set, when that is over. With the Expiry
	// Nothing the group isn't stopped; of ErrUnguarded it is told all the same. It must
	// not block.
	Interrupted func(why error, over bool)

	// RunsOn is told which processes of the group run on although it was stopped or
	// killed, as those of other users do, which we may not signal. It is told again, at
	// growing intervals, for as long as they do. There are no pids where the system
	// doesn't tell them. It must not block.
	RunsOn func(pids []int, killed bool)
}

// Expiry is what happens to the group when its allowance ends.
type Expiry uint8

const (
	Stop    Expiry = iota // it is stopped, and continued by the next Allow
	Kill                  // it is killed; while the clocks have parted it is stopped
	Nothing               // it runs on; it is still killed when our process is gone
)

// Status is how the command ended.
type Status struct {
	Code   int            // what it exited with, unless it was killed
	Signal syscall.Signal // what killed it, or 0
}

// ExitCode is the status as shells have it in $?.
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
	// ErrNotFound is a command that doesn't exist; shells exit with 127.
	ErrNotFound = errors.New("command not found")
	// ErrNotExecutable is a command that can't be executed; shells exit with 126.
	ErrNotExecutable = errors.New("command can't be executed")
	// ErrExpired means that the group may not run: its allowance is over.
	ErrExpired = errors.New("the time until which the command may run is over")
	// ErrParted means that the group may not run until the lock was looked at: wall
	// clock and clock since boot have parted, so the machine may have been paused
	// without either of them noticing.
	ErrParted = errors.New("the wall clock was stepped, or the machine was paused")
	// ErrUnguarded means that the guard is gone and couldn't be replaced for a
	// second: the group is stopped until there is one, since it would run on if our
	// process stopped now.
	ErrUnguarded = errors.New("no guard watches the command")
)

// guardArg makes our own program the guard; see GuardMain.
const guardArg = "__repolock-guard"
