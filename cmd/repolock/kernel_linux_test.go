package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/repolock/repolock/cmd/internal/session"
	"github.com/repolock/repolock/cmd/internal/show"
	"github.com/repolock/repolock/internal/daemon"
	"github.com/repolock/repolock/internal/fault"
	"github.com/repolock/repolock/internal/identity"
	"github.com/repolock/repolock/internal/procgroup/guard"
	"github.com/repolock/repolock/internal/procgroup/starter"
	"github.com/repolock/repolock/internal/test/assert"
	"github.com/repolock/repolock/internal/test/fdinfo"
	"github.com/repolock/repolock/internal/test/states"
	"github.com/repolock/repolock/internal/test/timens"
	"github.com/repolock/repolock/locking"
)

// guard returns the pid of the guard, or 0.
func (o *outage) guard() int {
	tasks, _ := filepath.Glob("/proc/" + strconv.Itoa(o.cmd.Process.Pid) + "/task/*/children")
	for _, file := range tasks {
		text, _ := os.ReadFile(file)
		for _, pid := range strings.Fields(string(text)) {
			if name, _ := os.ReadFile("/proc/" + pid + "/comm"); string(name) == guard.Name+"\n" {
				n, _ := strconv.Atoi(pid)
				return n
			}
		}
	}
	return 0
}

// TestLateAnswer: an answer that is read after the lease has ended doesn't count, even if the keeper's clock since boot
// differs from ours. If the store is silent, the lock is held as long as the keeper answers so. A failure of the
// keeper has the exit code that the keeper reports.
func TestLateAnswer(t *testing.T) {
	for _, c := range []struct {
		namespace string
		deadline  time.Duration
		read      time.Duration // asked at 100 s
		over      bool
	}{
		{"time:[1]", 150 * time.Second, 149 * time.Second, false},
		{"time:[1]", 150 * time.Second, 150 * time.Second, true},
		{"time:[2]", 9000 * time.Second, 139 * time.Second, false},
		{"time:[2]", 9000 * time.Second, 140 * time.Second, true}, // its clock is ahead of ours
		{"time:[2]", 50 * time.Second, 139 * time.Second, false},  // behind
		{"", 9000 * time.Second, 140 * time.Second, true},
		{"", 50 * time.Second, 139 * time.Second, false},
	} {
		a := session.Answer{Holding: session.Holding{Deadline: c.deadline, LeftSeconds: 40}, TimeNamespace: c.namespace}
		assert.Equal(t, a.Over(100*time.Second, c.read, "time:[1]"), c.over, c)
	}
	a := (session.Answer{Holding: session.Holding{Deadline: 9000 * time.Second, LeftSeconds: 40}})
	assert.That(t, a.Over(100*time.Second, 140*time.Second, ""), "two unknown namespaces are taken for the same")

	t.Setenv("XDG_RUNTIME_DIR", newDesk(t).run)
	token := daemon.NewToken()
	keeper, err := daemon.Listen(token)
	assert.OK(t, err)
	defer keeper.Close()
	var answer session.Answer
	go keeper.Serve(func(context.Context, string) (any, func()) { return answer, nil })
	for do, want := range map[string]int{"check": fault.ExitLost, "renew": fault.ExitLost, "release": 0} { // no time is left
		code, _, stderr := call(do, token)
		assert.That(t, code == want && (code != 0) == strings.Contains(stderr, "its lease was over when the keeper's answer was read"),
			"%s: exit code %d: %s", do, code, stderr)
	}
	answer.LeftSeconds, answer.Unseen = 3600, "it is down"
	code, _, stderr := call("check", token)
	assert.That(t, code == 0 && strings.Contains(stderr, "warning: the repository could not be looked into: it is down; the lock is held for "), "exit code %d: %s", code, stderr)
	failure := show.DescribeJSON(&show.Reporter{}, session.NotAcquired(locking.ErrUnreachable, false))
	answer.Failure = &failure
	code, _, stderr = call("renew", token)
	assert.That(t, code == fault.ExitUnavailable && strings.HasPrefix(stderr, "repolock: error: "), "exit code %d: %s", code, stderr)
}

// TestTimeNamespaces: in another time namespace than the keeper's, check, renew and release
// work as elsewhere, and break-lock --dead leaves the live lock alone.
func TestTimeNamespaces(t *testing.T) {
	if identity.Self().TimeNamespace == "none" {
		return // the kernel has no time namespaces
	}
	there := timens.Command(t, 100_000*time.Second)
	d := newDesk(t)
	h := d.acquire("--shared")
	run := func(args ...string) string {
		t.Helper()
		cmd := d.command(there[0], append(append(there[1:], "repolock", "--json"), args...)...)
		out, err := cmd.Output()
		assert.That(t, err == nil, "%s: %v: %s", args[0], err, out)
		return string(out)
	}
	var s jsonStatus
	err := json.Unmarshal([]byte(run("status")), &s)
	assert.That(t, err == nil && len(s.Locks) == 1 && !s.Locks[0].ProcessGone, "status: %v %+v", err, s)
	run("break-lock", "--dead", "--yes")
	run("check", h.Token)
	run("renew", h.Token)
	run("release", h.Token)
	d.free()
}

// TestTimers: repolock and its guard wait for timers that count suspend, and for steps of the wall clock.
func TestTimers(t *testing.T) {
	o := newOutage(t)
	o.prune("60s", "true")
	guard := 0
	until(t, "there is a guard", func() bool { guard = o.guard(); return guard != 0 })
	o.pid() // the command runs
	for _, pid := range []int{o.cmd.Process.Pid, guard} {
		until(t, "a timer of each kind, and no other", func() bool {
			boot, wall, timers := 0, 0, fdinfo.Timers(t, pid)
			for _, timer := range timers {
				switch {
				case timer.Clock == unix.CLOCK_BOOTTIME:
					boot++
				case timer.Clock == unix.CLOCK_REALTIME && timer.Flags == unix.TFD_TIMER_ABSTIME|unix.TFD_TIMER_CANCEL_ON_SET:
					wall++
				}
			}
			return boot > 0 && boot == wall && boot+wall == len(timers)
		})
	}
}

// TestLockOfKilledIsRemoved: if repolock is killed, its guard removes the lock of beads when it has ended the
// command, and no lock that another program has put in its place.
func TestLockOfKilledIsRemoved(t *testing.T) {
	const another = `{"holder": "tool", "pid": %d, "hostname": %q, "started_at": "2025-10-25T12:00:00Z"}`
	host, err := os.Hostname()
	assert.OK(t, err)
	for name, body := range map[string]string{
		"our own":           "",
		"of a live process": fmt.Sprintf(another, os.Getpid(), host),
		"of another host":   fmt.Sprintf(another, 1, host+".example"),
		"damaged":           "{",
	} {
		t.Run(name, func(t *testing.T) {
			o := newOutage(t)
			beads := filepath.Join(o.dir, "a b", ".beads")
			assert.OK(t, os.MkdirAll(beads, 0o700))
			file := filepath.Join(beads, ".exclusive-lock")
			o.prune("60s", "true", "--also", "beads:"+beads)
			guard := 0
			until(t, "there is a guard", func() bool { guard = o.guard(); return guard != 0 })
			command := o.pid()
			if body != "" {
				write(t, file+".new", body)
				assert.OK(t, os.Rename(file+".new", file))
			}
			assert.OK(t, o.cmd.Process.Kill())
			until(t, "the guard's end", func() bool { s := states.Of(guard); return s == "" || s == "Z" })
			if body != "" {
				raw, err := os.ReadFile(file)
				assert.That(t, err == nil && string(raw) == body, "%q %v", raw, err)
				return
			}
			_, err = os.Stat(file)
			assert.Is(t, err, os.ErrNotExist)
			s := states.Of(command)
			assert.That(t, s == "" || s == "Z", "the command runs: %s", s)
		})
	}
}

// TestWithoutProc: without /proc repolock can't start its own program as the guard, the starter or the
// keeper. The message says so and doesn't blame the command, and no lock is left. status needs no /proc.
func TestWithoutProc(t *testing.T) {
	there := []string{"unshare", "--mount"}
	if os.Geteuid() != 0 {
		there = append(there, "--user", "--map-root-user")
	}
	there = append(there, "sh", "-c", `mount -t tmpfs none /proc || exit 99; exec "$@"`, "sh")
	d := newDesk(t)
	for _, c := range []struct {
		command string
		want    int
		undone  string
	}{
		{"run --shared -- true", fault.ExitUnfit, "nothing was run; "},
		{"prune -- true", fault.ExitUnfit, "nothing was run; "},
		{"acquire --shared --for-pid none", fault.ExitUnfit, "no lock was taken; "},
		{"torture", fault.ExitUnfit, ""},
		{"status", 0, ""},
	} {
		args := slices.Concat(there[1:], []string{"repolock"}, strings.Fields(c.command))
		out, err := d.command(there[0], args...).CombinedOutput()
		code := exitOf(t, err)
		if code == 99 || code == 1 && os.Geteuid() != 0 {
			t.Skipf("this system doesn't allow a process to have mounts of its own: %s", out)
		}
		lines := strings.Split(string(out), "\n")
		said := strings.Join(lines[max(0, len(lines)-3):], "\n")
		want := regexp.MustCompile("^repolock: error: repolock can't start its own program once more: [a-z]+ /proc/self/exe: no such file or directory\n" +
			regexp.QuoteMeta("repolock: hint: "+c.undone+fault.NoExecutable.Advice) + "\n$")
		assert.That(t, code == c.want && (code == 0 || want.MatchString(said)), "%s: exit code %d: %s", c.command, code, out)
		d.free()
	}
}

// initialised runs this program, and returns the packages that were initialised when it ended, the number of
// allocations of each, and the exit code.
func initialised(t *testing.T, env []string, args ...string) (done []string, allocations map[string]int, code int) {
	t.Helper()
	exe, err := os.Executable()
	assert.OK(t, err)
	cmd := exec.Command(exe, args...)
	cmd.Env = append(env, "GODEBUG=inittrace=1")
	out, err := cmd.CombinedOutput()
	allocations = map[string]int{}
	for line := range strings.Lines(string(out)) {
		if f := strings.Fields(line); len(f) > 9 && f[0] == "init" && strings.HasPrefix(f[2], "@") {
			done = append(done, f[1])
			n, err := strconv.Atoi(f[9])
			assert.OK(t, err)
			allocations[f[1]] = n
		}
	}
	return done, allocations, exitOf(t, err)
}

// TestStarterIsEarly: a starter ends before package os is initialised, and with it nearly all
// other packages. That makes it quick.
func TestStarterIsEarly(t *testing.T) {
	done, _, code := initialised(t, []string{starter.Variable + "=0 1"})
	assert.That(t, code == 1 && slices.Contains(done, "runtime") && !slices.Contains(done, "os"),
		"it ended with %d; initialised before it: %q", code, done)
}

// TestGuardIsEarly: a guard runs before the packages of the stores and of the command line, and their imports, are
// initialised. Few packages are initialised before it. Our own packages do next to nothing before main, because most
// commands need few of them; a regular expression is compiled at its first use.
func TestGuardIsEarly(t *testing.T) {
	done, _, code := initialised(t, nil, guard.Argument)
	assert.That(t, code == 1 && slices.Contains(done, "os/signal"), "it ended with %d; initialised before it: %q", code, done) // it has no page
	late := regexp.MustCompile(`^(main|net|regexp|testing|flag|log|crypto/tls|encoding/(json|xml|gob)|golang\.org/.*|` +
		`github\.com/(repolock/repolock/(cmd|locking|replock|store)|alecthomas|minio|Backblaze|jackc/pgx/v5/(pgconn|pgtype)|redis).*|` +
		`github\.com/aws/.*/(service|config|credentials).*)$`)
	for _, name := range done {
		assert.That(t, !late.MatchString(name), "%s is initialised before it", name)
	}
	all, allocations, _ := initialised(t, nil, "-test.list", "^$")
	assert.That(t, len(done) <= len(all)/4 && len(all) >= 100, "initialised before it are %d packages of %d: %q", len(done), len(all), done)
	const most = 40
	ours := 0
	for name, n := range allocations {
		if !strings.HasPrefix(name, "github.com/repolock/repolock/") || strings.Contains(name, "/internal/test/") {
			continue
		}
		ours++
		assert.That(t, n <= most, "%s allocates memory %d times, of %d", name, n, most)
	}
	assert.That(t, ours >= 10, "initialised were %d packages of ours", ours)
}

// TestTooManyWords: the kernel accepts a line, and refuses its command, whose environment has variables of repolock.
// repolock doesn't advise chmod.
func TestTooManyWords(t *testing.T) {
	t.Setenv("REPOLOCK_REPO", t.TempDir())
	t.Setenv("XDG_RUNTIME_DIR", newDesk(t).run)
	// The kernel counts the path of the program too, and repolock's own can be long.
	command := filepath.Join(t.TempDir(), strings.Repeat("t", 200))
	assert.OK(t, os.Symlink("/bin/true", command))
	repolock, err := exec.LookPath("repolock") // of a word without a slash the shell reports the failure in the last directory of PATH
	assert.OK(t, err)
	says := func(size int) string { // the kernel accepts a quarter of the stack's limit
		words := []string{"-c", `ulimit -s 800 && exec "$@"`, "sh", repolock, "backup", "--", command, strings.Repeat("x", 100_000), strings.Repeat("x", size)}
		out, _ := exec.Command("sh", words...).CombinedOutput()
		return string(out)
	}
	accepted, refused := 0, 110_000
	for refused-accepted > 1 {
		half := (accepted + refused) / 2
		switch out := says(half); {
		case strings.Contains(out, "Argument list too long"): // the shell's words
			refused = half
		default:
			assert.That(t, !strings.Contains(out, "sh: "), "%d bytes: %s", half, out)
			accepted = half
		}
	}
	got := says(accepted)
	assert.That(t, strings.Contains(got, "argument list too long\n") && strings.Contains(got, "xargs -n"), "%d bytes: %s", accepted, got)
}
