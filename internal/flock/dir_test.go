//go:build linux

package flock_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/repolock/repolock/internal/clock"
	"github.com/repolock/repolock/internal/flock"
	"github.com/repolock/repolock/internal/test/assert"
)

// TestDir: Dir waits while another process has the flock, for MaxWait or until its context ends. Then its
// error names the directory. Its flock is free again although a process that is being started has a copy of
// the descriptor. On a file system without flock it waits for nothing.
func TestDir(t *testing.T) {
	dir := t.TempDir()
	take := func(ctx context.Context) (func(), bool, error) { return flock.Dir(ctx, clock.System{}, dir, flock.Try) }
	synctest.Test(t, func(t *testing.T) {
		unlock, locked, err := take(t.Context())
		assert.That(t, locked && err == nil, "%v, %v", locked, err)
		for _, limit := range []time.Duration{time.Second, 2 * flock.MaxWait} {
			ctx, cancel := context.WithTimeout(t.Context(), limit)
			defer cancel()
			began := time.Now()
			_, locked, err := take(ctx)
			assert.Says(t, err, context.DeadlineExceeded, dir)
			assert.That(t, !locked && time.Since(began) <= flock.MaxWait+clock.Tick, "%v after %v", locked, time.Since(began))
		}
		fds, err := filepath.Glob("/dev/fd/*")
		assert.OK(t, err)
		copies := 0
		for _, path := range fds {
			if at, _ := os.Readlink(path); at == dir {
				fd, err := strconv.Atoi(filepath.Base(path))
				assert.OK(t, err)
				dup, err := syscall.Dup(fd)
				assert.OK(t, err)
				defer syscall.Close(dup)
				copies++
			}
		}
		assert.That(t, copies > 0, "no copy: %q", fds) // a copy can have a number of the list, and is copied too
		time.AfterFunc(flock.MaxWait/2, unlock)
		unlock, locked, err = take(t.Context())
		assert.Need(t, locked && err == nil, "%v, %v", locked, err)
		unlock()
		unlock, locked, err = flock.Dir(t.Context(), clock.System{}, dir, func(*os.File) (bool, error) { return false, errors.ErrUnsupported })
		assert.That(t, !locked && err == nil, "without flock: %v, %v", locked, err)
		unlock()
	})
}
