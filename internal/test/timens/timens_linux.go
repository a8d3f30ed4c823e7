// Package timens starts processes in time namespaces, for tests.
package timens

import (
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"
)

// Command returns the beginning of a command line. It runs the rest in a new time namespace, whose time since
// boot is ahead by this much, and kills it with its parent. It skips the test if the system allows neither
// this user nor a user namespace to do that; for root it must work.
func Command(t *testing.T, ahead time.Duration) []string {
	t.Helper()
	command := []string{"unshare", "--time", "--boottime", strconv.Itoa(int(ahead.Seconds())), "--fork", "--kill-child"}
	if privileged() {
		return command
	}
	command = append(command, "--user", "--map-root-user")
	if out, err := exec.CommandContext(t.Context(), command[0], append(command[1:], "true")...).CombinedOutput(); err != nil {
		t.Skipf("without privileges this system allows no time namespace: %v: %s", err, out)
	}
	return command
}

// privileged reports whether this process can have a time namespace and set its clocks,
// as root can unless it is in a container.
func privileged() bool {
	status, _ := os.ReadFile("/proc/self/status")
	_, rest, _ := strings.Cut(string(status), "CapEff:")
	line, _, _ := strings.Cut(rest, "\n")
	effective, err := strconv.ParseUint(strings.TrimSpace(line), 16, 64)
	const needed = 1<<21 | 1<<25 // CAP_SYS_ADMIN and CAP_SYS_TIME of linux/capability.h
	return err == nil && effective&needed == needed
}
