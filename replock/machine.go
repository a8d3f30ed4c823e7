package replock

import (
	"io"
	"time"

	"github.com/repolock/repolock/internal/identity"
)

// Clock is the time as a lease needs it, on two clocks. It can be used concurrently. It must
// advance together with the runtime's timers, as the system's own clocks do, and as time in a
// testing/synctest bubble does.
type Clock interface {
	// Now returns the time of the wall clock. That clock can be wrong and can jump. Its time is
	// written into bodies, and never decides anything alone.
	Now() time.Time
	// Elapsed returns the time on a clock that can't be set, that counts suspends of the machine,
	// and that all processes of one boot share. Its zero is arbitrary. Deadlines are times on this
	// clock.
	Elapsed() time.Duration
	// After returns a channel that receives once d has passed. It doesn't count suspends.
	After(d time.Duration) <-chan time.Time
}

// process is a Clock that also has the randomness and the identity of the process that it is for. Only
// tests have one, which simulate several processes in one.
type process interface {
	Process() (io.Reader, identity.Process)
}
