package dir

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"time"
)

// lock takes the flock of the repository's directory. It is opened anew, since
// a flock belongs to what was opened: goroutines exclude each other too.
//
// It is tried for and slept for, as a process that waits in flock(2) can't heed
// its context. Whoever has it holds it for tens of microseconds.
func (s *Store) lock(ctx context.Context, root *os.Root) (unlock func(), err error) {
	if !s.flock {
		return func() {}, nil
	}
	self, err := root.Open(".")
	if err != nil {
		return nil, err
	}
	for pause := 100 * time.Microsecond; ; pause = min(2*pause, 10*time.Millisecond) {
		ok, err := tryLock(self)
		if err != nil {
			self.Close()
			return nil, err
		}
		if ok {
			return func() { self.Close() }, nil // which unlocks it
		}
		select {
		case <-ctx.Done():
			err := fmt.Errorf("the flock on %s %s, so nothing can be written there: end that process, or have it lock another file: %w",
				s.path, flockHolder(self), ctx.Err())
			self.Close()
			return nil, err
		case <-time.After(pause/2 + rand.N(pause)):
		}
	}
}

// heldByAnother is all that can be said of most holders.
const heldByAnother = "is held by another process"

// canLock finds out whether directories of this file system can be locked.
func canLock(self *os.File) bool {
	ok, err := tryLock(self)
	if ok {
		unlock(self)
	}
	return err == nil
}
