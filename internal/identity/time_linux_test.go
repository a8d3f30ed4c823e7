package identity

import (
	"bufio"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/repolock/repolock/internal/clock"
	"github.com/repolock/repolock/internal/test/assert"
	"github.com/repolock/repolock/internal/test/timens"
)

// TestSameBoot: only processes of the same boot and of the same, known time namespace share a clock since
// boot.
func TestSameBoot(t *testing.T) {
	self := Process{BootID: "b", TimeNamespace: "time:[1]"}
	for name, c := range map[string]struct {
		p, q Process
		same bool
	}{
		"same":                   {self, self, true},
		"a kernel that has none": {Process{BootID: "b", TimeNamespace: "none"}, Process{BootID: "b", TimeNamespace: "none"}, true},
		"another boot":           {self, Process{BootID: "c", TimeNamespace: "time:[1]"}, false},
		"no boot":                {Process{TimeNamespace: "time:[1]"}, Process{TimeNamespace: "time:[1]"}, false},
		"another time namespace": {self, Process{BootID: "b", TimeNamespace: "time:[2]"}, false},
		"one unknown":            {self, Process{BootID: "b"}, false},
		"both unknown":           {Process{BootID: "b"}, Process{BootID: "b"}, false},
	} {
		assert.Equal(t, c.p.SameBoot(c.q), c.same, name)
		assert.Equal(t, c.q.SameBoot(c.p), c.same, "%s, the other way round", name)
	}
}

// TestRebooted: a process has ended with a boot only if its machine is ours, and both boots are known and differ.
func TestRebooted(t *testing.T) {
	self := Process{HostID: "h", BootID: "b"}
	for name, c := range map[string]struct {
		p, q     Process
		rebooted bool
	}{
		"same boot":              {self, self, false},
		"an earlier boot":        {self, Process{HostID: "h", BootID: "a"}, true},
		"its boot is unknown":    {self, Process{HostID: "h"}, false},
		"our boot is unknown":    {Process{HostID: "h"}, self, false},
		"another machine":        {self, Process{HostID: "i", BootID: "a"}, false},
		"two unknown machines":   {Process{BootID: "b"}, Process{BootID: "a"}, false},
		"one unknown machine":    {self, Process{BootID: "a"}, false},
		"nothing is known of it": {self, Process{}, false},
	} {
		assert.Equal(t, c.p.Rebooted(c.q), c.rebooted, name)
	}
}

// TestTimeNamespaceIn: the result is "none" only if the kernel certainly has no time namespaces.
func TestTimeNamespaceIn(t *testing.T) {
	for want, links := range map[string][]string{
		"time:[7]": {"pid:[1]", "time:[7]", "time_for_children:[8]"},
		"none":     {"pid:[1]"},
		"":         {}, // no /proc, or not Linux's
	} {
		dir := t.TempDir()
		for _, to := range links {
			kind, _, _ := strings.Cut(to, ":")
			assert.OK(t, os.Symlink(to, filepath.Join(dir, kind)))
		}
		assert.Equal(t, timeNamespaceIn(dir), want, "with %q", links)
	}
	dir := t.TempDir()
	assert.OK(t, os.Symlink("pid:[1]", filepath.Join(dir, "pid")))
	assert.OK(t, os.Mkdir(filepath.Join(dir, "time"), 0o700))
	assert.Equal(t, timeNamespaceIn(dir), "", "with a link that can't be read")
}

// elsewhereEnv is set for a process in another time namespace, to the pid of the test.
const elsewhereEnv = "REPOLOCK_TEST_ELSEWHERE"

// elsewhere is the view of that process.
type elsewhere struct {
	Self, Parent Process
	Elapsed      time.Duration
}

// TestTimeNamespaces runs a process in another time namespace. Both have the same boot id and pid
// namespace, and neither takes the other for gone.
func TestTimeNamespaces(t *testing.T) {
	if pid, err := strconv.Atoi(os.Getenv(elsewhereEnv)); err == nil {
		see := elsewhere{Self: Self(), Elapsed: clock.System{}.Elapsed()}
		see.Parent, _ = Of(pid)
		assert.OK(t, json.NewEncoder(os.Stdout).Encode(see))
		_, _ = bufio.NewReader(os.Stdin).ReadByte() // the test ends
		return
	}
	self := Self()
	if self.TimeNamespace == "none" {
		return // TestTimeNamespaceIn covers such a kernel
	}
	const offset = 100_000 * time.Second
	see := inTimeNamespace(t, offset)

	assert.Need(t, see.Self.BootID == self.BootID && see.Self.PIDNamespace == self.PIDNamespace, "another boot or pid namespace: %+v, %+v", see.Self, self)
	ahead := see.Elapsed - (clock.System{}).Elapsed()
	assert.Need(t, ahead >= offset-time.Hour, "its time since boot is only %v ahead", ahead)
	namespace, err := os.Readlink("/proc/" + strconv.Itoa(see.Self.PID) + "/ns/time")
	if err != nil || see.Self.TimeNamespace != namespace || namespace == self.TimeNamespace {
		t.Errorf("its time namespace is %q, which is %q (%v); ours is %q", see.Self.TimeNamespace, namespace, err, self.TimeNamespace)
	}
	assert.That(t, see.Parent.PIDStart != self.PIDStart, "both see the same start, %d: the clocks don't differ", self.PIDStart)
	assert.That(t, !see.Self.SameBoot(self) && !self.SameBoot(see.Self), "the two share a clock")
	assert.That(t, !self.Gone(see.Self) && !see.Self.Ended(), "it is gone, because it sees another start of itself")
	// By our clock it isn't a later process either.
	p, ok := Of(see.Self.PID)
	assert.That(t, ok && p.PIDStart != see.Self.PIDStart && p.TimeNamespace == self.TimeNamespace && !p.Ended(), "of it: %+v %v", p, ok)
	p.PIDStart--
	assert.That(t, p.Ended(), "a later process is taken for it")
}

// inTimeNamespace starts this test in another time namespace, whose clocks are ahead by the offset. The
// process runs until the test ends.
func inTimeNamespace(t *testing.T, offset time.Duration) (see elsewhere) {
	t.Helper()
	command := timens.Command(t, offset)
	cmd := exec.Command(command[0], append(command[1:], os.Args[0], "-test.run=^TestTimeNamespaces$")...)
	cmd.Env = append(os.Environ(), elsewhereEnv+"="+strconv.Itoa(os.Getpid()))
	cmd.Stderr = os.Stderr
	stdin, err := cmd.StdinPipe()
	assert.OK(t, err)
	stdout, err := cmd.StdoutPipe()
	assert.OK(t, err)
	assert.OK(t, cmd.Start())
	t.Cleanup(func() {
		_ = stdin.Close()
		assert.Is(t, cmd.Wait(), nil, "in the other time namespace")
	})
	assert.OK(t, json.NewDecoder(stdout).Decode(&see))
	return see
}
