package procgroup

import (
	"os"
	"os/signal"
)

// Signals delivers the signals that a caller must pass on to the group, until stop is called. If SIGHUP or
// SIGINT was ignored when we were started (nohup), Signals leaves it out, so that the command ignores it
// too. No public function of Go reports whether another signal was ignored (runtime.fwdSig).
func Signals() (signals <-chan os.Signal, stop func()) {
	c := make(chan os.Signal, 16)
	for _, sig := range passedOn {
		if !signal.Ignored(sig) {
			signal.Notify(c, sig)
		}
	}
	return c, func() { signal.Stop(c) }
}
