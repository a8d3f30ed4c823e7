// Package flock locks files and directories by flock(2). The flock belongs to an open file. It excludes every other
// open file for the same path, in this process too, and ends when the file is closed or its process ends.
package flock

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"time"

	"github.com/repolock/repolock/internal/clock"
)

// Close frees the flock and closes the file. To close the file alone isn't enough: a child that this process is just
// starting might still have the file open.
func Close(f *os.File) {
	Unlock(f)
	f.Close()
}

// MaxWait is how long Dir waits for another process. Holders keep the flock for milliseconds, unless they are stopped.
const MaxWait = 10 * time.Second

// Dir opens a directory and takes its flock by calling try, which is Try except in tests. On a file system without
// flock, locked is false, and unlock only closes the directory.
func Dir(ctx context.Context, c clock.Clock, dir string, try func(*os.File) (bool, error)) (unlock func(), locked bool, err error) {
	f, err := os.Open(dir)
	if err != nil {
		return nil, false, err
	}
	end := c.Elapsed() + MaxWait
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
			return nil, false, fmt.Errorf("another process holds the flock on %s, nothing was done: find and end the stopped process (lslocks): %w",
				dir, cmp.Or(err, context.DeadlineExceeded))
		}
	}
}
