package flock

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"time"

	"github.com/repolock/repolock/internal/clock"
)

// Patience is how long Dir waits. A holder has the flock for milliseconds, unless it is stopped.
const Patience = 10 * time.Second

// Dir takes the flock of a directory by try, such as Try. It opens the directory anew, because a
// flock belongs to an open file. locked is false on a file system that has no flock.
func Dir(ctx context.Context, c clock.Clock, dir string, try func(*os.File) (bool, error)) (unlock func(), locked bool, err error) {
	f, err := os.Open(dir)
	if err != nil {
		return nil, false, err
	}
	end := c.Elapsed() + Patience
	for pause := 100 * time.Microsecond; ; pause = min(2*pause, 10*time.Millisecond) {
		ok, none := try(f)
		if ok || none != nil {
			return func() { Close(f) }, ok, nil
		}
		waits := c.Elapsed() < end
		if waits {
			err = clock.Sleep(ctx, c, pause)
		}
		if !waits || err != nil {
			f.Close()
			return nil, false, fmt.Errorf("another process holds the flock on %s, nothing was done: look which process stands still (lslocks): %w",
				dir, cmp.Or(err, context.DeadlineExceeded))
		}
	}
}
