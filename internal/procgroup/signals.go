package procgroup

import (
	"os"
	"os/signal"
)

// Signals delivers the signals for a caller to pass on to the group, until stop is called.
// Signals that were ignored when we were started (nohup) are left alone, so that they stay
// ignored in the command; Go reports only SIGHUP and SIGINT.
func Signals() (signals <-chan os.Signal, stop func()) {
	c := make(chan os.Signal, 16)
	for _, sig := range passedOn {
		if !signal.Ignored(sig) {
			signal.Notify(c, sig)
		}
	}
	return c, func() { signal.Stop(c) }
}
