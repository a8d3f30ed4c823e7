// Cloudstic runs a command under the lock of Cloudstic's format as it was first published, of
// which internal/test/cloudsticlock is a copy: a fixture, and no program of Cloudstic's.
//
//	cloudstic shared|exclusive DIRECTORY COMMAND…
//
// It exits with 75 if the lock is held.
package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"syscall"

	"github.com/repolock/repolock/internal/clock"
	"github.com/repolock/repolock/internal/test/cloudsticlock"
	"github.com/repolock/repolock/store/dir"
)

func main() {
	code, err := run(os.Args[1:])
	if err != nil {
		fmt.Fprintln(os.Stderr, "cloudstic:", err)
		code = cmp.Or(code, 1)
	}
	os.Exit(code)
}

func run(args []string) (code int, err error) {
	if len(args) < 3 || args[0] != "shared" && args[0] != "exclusive" {
		return 64, errors.New("usage: cloudstic shared|exclusive DIRECTORY COMMAND…")
	}
	ctx := context.Background()
	s, err := dir.Open(ctx, args[1])
	if err != nil {
		return 0, err
	}
	l := cloudsticlock.Locker{Store: s, Clock: clock.System{}, Holder: fmt.Sprintf("torture (pid %d)", os.Getpid())}
	take := l.Shared
	if args[0] == "exclusive" {
		take = l.Exclusive
	}
	// It lets its command end, and then releases the lock. (An ignored signal would be ignored by
	// the command, too.)
	signal.Notify(make(chan os.Signal, 1), syscall.SIGTERM, os.Interrupt)
	k, err := take(ctx, "torture")
	if errors.Is(err, cloudsticlock.ErrHeld) {
		return 75, err
	}
	if err != nil {
		return 0, err
	}
	cmd := exec.Command(args[2], args[3:]...)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	ran := cmd.Run()
	code = cmd.ProcessState.ExitCode()
	if _, failed := errors.AsType[*exec.ExitError](ran); failed {
		ran = nil
	}
	return code, errors.Join(ran, k.Release(ctx))
}
