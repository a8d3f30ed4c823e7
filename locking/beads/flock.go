package beads

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/repolock/repolock/internal/flock"
)

// flockLimit is how long a method waits for the flock. A holder has it for a moment, unless it
// is stopped.
const flockLimit = 10 * time.Second

// tryFlock is a variable for tests.
var tryFlock = flock.Try

// flock takes the flock of the directory, which excludes the other users of this package on this
// machine. It opens the directory anew, because a flock belongs to an open file. exclusive is
// false on a file system that has no flock.
func (b *Backend) flock(ctx context.Context) (unlock func(), exclusive bool, err error) {
	if err := ctx.Err(); err != nil {
		return nil, false, err
	}
	dir, err := os.Open(b.dir)
	if err != nil {
		return nil, false, err
	}
	limit := b.opts.Clock.Elapsed() + flockLimit
	for pause := 100 * time.Microsecond; ; pause = min(2*pause, 10*time.Millisecond) {
		ok, err := tryFlock(dir)
		if ok || err != nil {
			return func() { flock.Close(dir) }, ok, nil
		}
		if b.opts.Clock.Elapsed() >= limit {
			dir.Close()
			return nil, false, fmt.Errorf("another process holds the flock on %s for more than %v, nothing was done: end it",
				b.dir, flockLimit)
		}
		select {
		case <-ctx.Done():
			dir.Close()
			return nil, false, fmt.Errorf("another process holds the flock on %s: %w", b.dir, ctx.Err())
		case <-b.opts.Clock.After(pause):
		}
	}
}
