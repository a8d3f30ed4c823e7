// Package child runs one command in a process group of its own, which can be
// stopped, continued and killed as a whole, and which never runs beyond the
// time until which it was allowed to: a second process, the guard, stops or
// kills the group when its allowance ends, and kills it when our own process is
// gone, so that this holds even while we are stopped or after we were killed.
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

	// Trouble is told of what goes wrong in the background: ErrUnguarded, or
	// ErrExpired if the shell continued us too late; then the next Allow
	// continues the group. It must not block.
	Trouble func(error)
}

// Expiry is what happens to the group when its allowance ends.
type Expiry uint8

const (
	Stop    Expiry = iota // it is stopped, and continued by the next Allow
	Kill                  // it is killed
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
	// ErrUnguarded means that the guard is gone, doesn't answer, and couldn't be
	// replaced: if our process stops now, the group runs on.
	ErrUnguarded = errors.New("no guard watches the command")
)

// guardArg makes our own program the guard; see GuardMain.
const guardArg = "__repolock-guard"
