package procgroup

import (
	"errors"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/repolock/repolock/internal/test/assert"
)

// TestCheckRoom: a limit on address space or on processes that is too low for a run is an error, and a higher limit or
// one that isn't for root is none. The test runs in a process of its own, because it can't raise the limits again.
func TestCheckRoom(t *testing.T) {
	if os.Getenv("ROOM") == "" {
		c := exec.Command(os.Args[0], "-test.run=^TestCheckRoom$")
		c.Env = append(os.Environ(), "ROOM=1")
		out, err := c.CombinedOutput()
		assert.That(t, err == nil, "%v: %s", err, out)
		return
	}
	allow := func(resource int, most uint64) {
		var limit unix.Rlimit
		assert.OK(t, unix.Getrlimit(resource, &limit))
		limit.Cur = min(most, limit.Max)
		assert.OK(t, unix.Setrlimit(resource, &limit))
	}
	pages, _, _ := strings.Cut(contents("/proc/self/statm"), " ")
	used, err := strconv.ParseUint(pages, 10, 64)
	assert.OK(t, err)
	used *= uint64(os.Getpagesize())
	for _, left := range []uint64{leastMemory - 4<<20, 2 * leastMemory} {
		allow(unix.RLIMIT_AS, used+left)
		err := checkRoom()
		assert.That(t, errors.Is(err, ErrNoRoom) == (left < leastMemory), "%d bytes left: %v", left, err)
	}
	allow(unix.RLIMIT_AS, unix.RLIM_INFINITY)
	if os.Getuid() == 0 {
		allow(unix.RLIMIT_NPROC, 1)
		assert.OK(t, checkRoom())
		assert.OK(t, syscall.Setuid(65534))
	}
	own, err := strconv.ParseUint(status("self")["Threads"], 10, 64)
	assert.OK(t, err)
	for _, most := range []uint64{1, own + leastTasks - 1} {
		allow(unix.RLIMIT_NPROC, most)
		err := checkRoom()
		assert.That(t, errors.Is(err, ErrNoRoom), "%d threads, and %d allowed: %v", own, most, err)
	}
	allow(unix.RLIMIT_NPROC, unix.RLIM_INFINITY)
	assert.OK(t, checkRoom())
	allow(unix.RLIMIT_NPROC, 1<<20) // more than this user has
	assert.OK(t, checkRoom())
}
