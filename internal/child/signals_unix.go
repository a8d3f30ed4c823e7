//go:build unix

package child

import (
	"os"
	"os/signal"

	"golang.org/x/sys/unix"
)

// Signals delivers the signals that a caller passes on to the group, until stop
// is called. Those that were ignored when we were started (nohup) are left alone,
// so that they stay ignored in the command; Go lets us know of SIGHUP and SIGINT
// only. SIGTSTP and SIGCONT are the group's own affair.
func Signals() (signals <-chan os.Signal, stop func()) {
	c := make(chan os.Signal, 16)
	for _, sig := range []os.Signal{unix.SIGINT, unix.SIGTERM, unix.SIGHUP, unix.SIGQUIT, unix.SIGUSR1, unix.SIGUSR2, unix.SIGWINCH} {
		if !signal.Ignored(sig) {
			signal.Notify(c, sig)
		}
	}
	return c, func() { signal.Stop(c) }
}
