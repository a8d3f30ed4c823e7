package procgroup

import (
	"os"
	"os/signal"
)

// Signals delivers the signals for a caller to pass on to the group, until stop is called.
// SIGHUP and SIGINT are left alone if they were ignored when we were started (nohup), so that they
// stay ignored in the command. Go's runtime replaces the disposition of the others before any code
// of ours runs, and no public function returns what it found (runtime.fwdSig).
func Signals() (signals <-chan os.Signal, stop func()) {
	c := make(chan os.Signal, 16)
	for _, sig := range passedOn {
		if !signal.Ignored(sig) {
			signal.Notify(c, sig)
		}
	}
	return c, func() { signal.Stop(c) }
}
