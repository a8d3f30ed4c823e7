package procgroup

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/repolock/repolock/internal/test/assert"
)

// TestCrowded: a control group that allows too few further tasks is an error, in both versions of control groups, and
// also if it is above the group of this process. Other hierarchies, and groups without a limit, are none.
func TestCrowded(t *testing.T) {
	root := t.TempDir()
	group := func(dir, most string, used int) {
		t.Helper()
		assert.OK(t, os.MkdirAll(filepath.Join(root, dir), 0o700))
		for name, content := range map[string]string{"pids.max": most, "pids.current": strconv.Itoa(used)} {
			assert.OK(t, os.WriteFile(filepath.Join(root, dir, name), []byte(content+"\n"), 0o600))
		}
	}
	group("small", "25", 6)
	group("small/inner", "max", 2)
	group("large", strconv.Itoa(6+leastTasks), 6)
	group("cpu/x", "1", 1)
	group("pids/x", "8", 4)
	group("cpu,pids/x", "8", 4)
	for groups, want := range map[string]string{
		"0::/small\n":              "allows 25 processes and threads (pids.max), and 6 run",
		"1:cpu:/\n0::/small/inner": "allows 25 processes",
		"8:pids:/x\n7:cpu:/":       "allows 8 processes",
		"8:cpu,pids:/x":            "allows 8 processes",
		"0::/large":                "", "0::/": "", "0::/..": "", "0::/gone": "", "8:cpu:/x\n": "", "": "", "odd": "",
	} {
		err := crowded(groups, root)
		assert.That(t, (err == nil) == (want == "") && (err == nil || errors.Is(err, ErrNoRoom) && strings.Contains(err.Error(), want)), "%q: %v", groups, err)
	}
}

// TestCheckRoom: a limit on address space or on processes that is too low for a run is an error, and a higher limit or
// one that isn't for root is none. The test runs in a process of its own, because it changes its user. The limit on
// processes is a fake, since Go's runtime needs another thread at any moment.
func TestCheckRoom(t *testing.T) {
	if os.Getenv("ROOM") == "" {
		c := exec.Command(os.Args[0], "-test.run=^TestCheckRoom$")
		c.Env = append(os.Environ(), "ROOM=1")
		out, err := c.CombinedOutput()
		assert.That(t, err == nil, "%v: %s", err, out)
		return
	}
	allow := func(most uint64) {
		var limit unix.Rlimit
		assert.OK(t, unix.Getrlimit(unix.RLIMIT_AS, &limit))
		limit.Cur = min(most, limit.Max)
		assert.OK(t, unix.Setrlimit(unix.RLIMIT_AS, &limit))
	}
	pages, _, _ := strings.Cut(contents("/proc/self/statm"), " ")
	used, err := strconv.ParseUint(pages, 10, 64)
	assert.OK(t, err)
	used *= uint64(os.Getpagesize())
	for _, left := range []uint64{leastMemory - 4<<20, 2 * leastMemory} {
		allow(used + left)
		err := checkRoom()
		assert.That(t, errors.Is(err, ErrNoRoom) == (left < leastMemory), "%d bytes left: %v", left, err)
	}
	allow(unix.RLIM_INFINITY)
	var tasks uint64
	getrlimit = func(resource int, limit *unix.Rlimit) error {
		if resource != unix.RLIMIT_NPROC {
			return unix.Getrlimit(resource, limit)
		}
		*limit = unix.Rlimit{Cur: tasks, Max: unix.RLIM_INFINITY}
		return nil
	}
	if os.Getuid() == 0 {
		tasks = 1
		assert.OK(t, checkRoom())
		assert.OK(t, syscall.Setuid(65534))
	}
	own, err := strconv.ParseUint(status("self")["Threads"], 10, 64)
	assert.OK(t, err)
	for _, tasks = range []uint64{1, own + leastTasks - 1} {
		err := checkRoom()
		assert.That(t, errors.Is(err, ErrNoRoom), "%d threads, and %d allowed: %v", own, tasks, err)
	}
	for _, tasks = range []uint64{unix.RLIM_INFINITY, 1 << 20} { // more than this user has
		assert.OK(t, checkRoom())
	}
}
