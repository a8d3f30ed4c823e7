package dir

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"time"

	"github.com/repolock/repolock/internal/flock"
)

// lock takes the flock of the repository's directory. It opens the directory anew, because a
// flock belongs to an open file: so goroutines exclude each other too.
//
// It polls, because a process that waits in flock(2) can't heed its context. A holder has the
// flock for tens of microseconds.
func (s *Store) lock(ctx context.Context, root *directory) (unlock func(), err error) {
	if !s.flock {
		return func() {}, nil
	}
	self, err := root.Open(".")
	if err != nil {
		return nil, err
	}
	for pause := 100 * time.Microsecond; ; pause = min(2*pause, 10*time.Millisecond) {
		ok, err := flock.Try(self)
		if err != nil {
			self.Close()
			return nil, cant("lock", s.path, err)
		}
		if ok {
			return func() { flock.Close(self) }, nil
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

// heldByAnother is the name of an unknown holder.
const heldByAnother = "is held by another process"

// canLock reports whether directories of this file system can be locked.
func canLock(self *os.File) bool {
	ok, err := flock.Try(self)
	if ok {
		flock.Unlock(self)
	}
	return err == nil
}
