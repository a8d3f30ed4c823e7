//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// peakMemory runs a program and returns the most memory that it, or one of its
// own processes, has had resident.
//
// The kernel counts what a process had before it became the program, too, which
// in a child of ours is what we have ourselves. So a shell starts it, which has
// little, and has gone before the program begins: we inherit it, and hear its usage.
func peakMemory(ctx context.Context, args []string) (bytes int64, err error) {
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return 0, fmt.Errorf("becoming a subreaper: %w", err)
	}
	blocked, begin, err := os.Pipe()
	if err != nil {
		return 0, err
	}
	defer blocked.Close()
	defer begin.Close()
	script := `{ read -r begin <&3; exec "$@" 3<&-; } >/dev/null 2>&1 & echo $!`
	c := exec.CommandContext(ctx, "sh", append([]string{"-c", script, "sh"}, args...)...)
	c.ExtraFiles = []*os.File{blocked}
	out, err := c.Output()
	if err != nil {
		return 0, err
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(out)))
	if err != nil {
		return 0, err
	}
	if _, err := begin.WriteString("begin\n"); err != nil {
		return 0, err
	}
	return usageOf(pid)
}

// usageOf waits for a child to end well.
func usageOf(pid int) (peak int64, err error) {
	var status unix.WaitStatus
	var usage unix.Rusage
	for {
		_, err = unix.Wait4(pid, &status, 0, &usage)
		if !errors.Is(err, unix.EINTR) {
			break
		}
	}
	if err == nil && (!status.Exited() || status.ExitStatus() != 0) {
		err = fmt.Errorf("it failed: wait status %#x", int(status))
	}
	return usage.Maxrss << 10, err
}
