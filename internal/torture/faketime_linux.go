package torture

import (
	"context"
	"fmt"
	"os/exec"
	"strings"
	"time"
)

// library returns the path of libfaketime. A time namespace doesn't do: it has the wall clock
// of all others (time_namespaces(7)).
func library(ctx context.Context) (string, error) {
	out, err := exec.CommandContext(ctx, "faketime", "-f", "+0", "sh", "-c", "echo $LD_PRELOAD").Output()
	path := strings.TrimSpace(string(out))
	if err == nil && path == "" {
		return "", fmt.Errorf("faketime preloads nothing")
	}
	return path, err
}

// faketime returns the environment in which programs that ask libc for the time see a wall
// clock that is ahead.
func (t *trial) faketime(ahead time.Duration) []string {
	return []string{
		"LD_PRELOAD=" + t.library, fmt.Sprintf("FAKETIME=+%d", int(ahead.Seconds())), "FAKETIME_DONT_FAKE_MONOTONIC=1",
	}
}

// omits returns why a fault can't be inflicted, or "".
func (t *trial) omits(ctx context.Context, f Fault) string {
	if f != Clock || t.library != "" {
		return map[bool]string{true: t.shiftless}[f == Clock]
	}
	var err error
	if t.library, err = library(ctx); err != nil {
		return "it needs the program faketime: " + err.Error()
	}
	return ""
}
