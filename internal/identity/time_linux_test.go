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

// TestSameBoot: only processes of the same boot that name the same time namespace share a
// clock since boot.
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
		"the other's unknown":    {self, Process{BootID: "b"}, false},
		"ours unknown":           {Process{BootID: "b"}, self, false},
		"both unknown":           {Process{BootID: "b"}, Process{BootID: "b"}, false},
	} {
		if got := c.p.SameBoot(c.q); got != c.same {
			t.Errorf("%s: %v", name, got)
		}
	}
}

// TestTimeNamespaceIn: "none" is only for a kernel that certainly has no time namespaces.
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
		if got := timeNamespaceIn(dir); got != want {
			t.Errorf("with %q: %q, want %q", links, got, want)
		}
	}
	dir := t.TempDir() // an unreadable one isn't "none"
	for name, err := range map[string]error{
		"pid":  os.Symlink("pid:[1]", filepath.Join(dir, "pid")),
		"time": os.Mkdir(filepath.Join(dir, "time"), 0o700),
	} {
		if err != nil {
			t.Fatal(name, err)
		}
	}
	if got := timeNamespaceIn(dir); got != "" {
		t.Errorf("one that can't be read is %q", got)
	}
}

// elsewhereEnv marks a process in another time namespace.
const elsewhereEnv = "REPOLOCK_TEST_ELSEWHERE"

// elsewhere is the view of a process in another time namespace.
type elsewhere struct {
	Self      Process
	Elapsed   time.Duration
	Namespace string
	// Of the process that has started it.
	Parent     Process
	SameBoot   bool
	ParentGone bool // as if its pid were no process's
}

// TestTimeNamespaces uses real ones: the processes have one boot id and one pid namespace, and
// none of them takes the other for gone.
func TestTimeNamespaces(t *testing.T) {
	if text := os.Getenv(elsewhereEnv); text != "" {
		seeElsewhere(t, text)
		return
	}
	if Self().TimeNamespace == "none" {
		return // TestTimeNamespaceIn covers such a kernel
	}
	const offset = 100_000 * time.Second
	self := Self()
	see := inTimeNamespace(t, offset, self)

	if see.Self.BootID != self.BootID || see.Self.PIDNamespace != self.PIDNamespace {
		t.Fatalf("another boot or pid namespace: %+v, %+v", see.Self, self)
	}
	if ahead := see.Elapsed - (clock.System{}).Elapsed(); ahead < offset-time.Hour {
		t.Fatalf("its time since boot is only %v ahead", ahead)
	}
	if see.Self.TimeNamespace != see.Namespace || see.Self.TimeNamespace == self.TimeNamespace {
		t.Errorf("its time namespace is %q, which is %q; ours is %q", see.Self.TimeNamespace, see.Namespace, self.TimeNamespace)
	}
	if see.Parent.PIDStart == self.PIDStart {
		t.Errorf("both see the same start, %d: the clocks don't differ", self.PIDStart)
	}
	if see.SameBoot || see.ParentGone {
		t.Errorf("it takes us for one of its own clock (%v), for gone (%v)", see.SameBoot, see.ParentGone)
	}
	if self.SameBoot(see.Self) || self.Gone(see.Self) {
		t.Errorf("we take it for one of our clock (%v), for gone (%v)", self.SameBoot(see.Self), self.Gone(see.Self))
	}
	assert.That(t, !see.Self.Ended(), "it has ended, because its start is another as it sees it")
	// By this process's clock too, it isn't a later process.
	if p, ok := Of(see.Self.PID); !ok || p.PIDStart == see.Self.PIDStart || p.TimeNamespace != self.TimeNamespace || p.Ended() {
		t.Errorf("of it: %+v %v", p, ok)
	} else if p.PIDStart--; !p.Ended() {
		t.Error("a later process passes for it")
	}
}

// seeElsewhere writes its view to stdout, and stays until stdin ends.
func seeElsewhere(t *testing.T, text string) {
	var parent Process
	assert.OK(t, json.Unmarshal([]byte(text), &parent))
	self := Self()
	see := elsewhere{Self: self, Elapsed: clock.System{}.Elapsed(), SameBoot: self.SameBoot(parent)}
	see.Namespace, _ = os.Readlink("/proc/" + strconv.Itoa(self.PID) + "/ns/time")
	see.Parent, _ = Of(parent.PID)
	parent.PID = 1 << 30
	see.ParentGone = self.Gone(parent)
	out, err := json.Marshal(see)
	assert.OK(t, err)
	_, _ = os.Stdout.Write(append(out, '\n'))
	_, _ = bufio.NewReader(os.Stdin).ReadByte()
}

// inTimeNamespace starts this test in another time namespace, whose clocks are ahead by the
// offset. The process runs until the test ends.
func inTimeNamespace(t *testing.T, offset time.Duration, self Process) (see elsewhere) {
	t.Helper()
	command := timens.Command(t, offset)
	exe, err := os.Executable()
	assert.OK(t, err)
	text, err := json.Marshal(self)
	assert.OK(t, err)
	cmd := exec.Command(command[0], append(command[1:], exe, "-test.run=^TestTimeNamespaces$")...)
	cmd.Env = append(os.Environ(), elsewhereEnv+"="+string(text))
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
	lines := bufio.NewReader(stdout)
	line, err := lines.ReadBytes('\n')
	if err == nil {
		err = json.Unmarshal(line, &see)
	}
	if err != nil {
		t.Fatalf("%v: %q", err, line)
	}
	return see
}
