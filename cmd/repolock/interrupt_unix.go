//go:build unix

package main

import (
	"os/signal"
	"syscall"
	"time"

	"github.com/repolock/repolock/internal/child"
)

// interrupt does to our job what Ctrl-C or Ctrl-\ does to one without repolock: a script
// that runs us must not go on to its next command, nor a loop in the shell, which looks
// whether its command died of SIGINT. The others of the job are told too if the terminal
// told the command alone. It returns if there is no job at a terminal.
func interrupt(sig syscall.Signal, others bool) {
	if sig != syscall.SIGINT && sig != syscall.SIGQUIT || signal.Ignored(sig) || !child.Foreground() {
		return
	}
	pid := syscall.Getpid()
	if others {
		pid = 0
	}
	if sig == syscall.SIGQUIT { // of which Go would print its stacks
		signal.Ignore(sig)
		_ = syscall.Kill(pid, sig)
		return
	}
	signal.Reset(sig)
	if syscall.Kill(pid, sig) == nil {
		time.Sleep(time.Second) // any thread may be the one to take it
	}
}
