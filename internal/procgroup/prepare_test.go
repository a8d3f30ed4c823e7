//go:build linux

package procgroup

import (
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/repolock/repolock/internal/procstat"
)

// A prepared command doesn't run, and begins in the environment of its start.
func TestPrepare(t *testing.T) {
	k := newTicker(t)
	out, err := os.Create(filepath.Join(t.TempDir(), "environment"))
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	p, err := Prepare(Command{Args: concat([]string{"sh", "-c", `cat /proc/self/environ; exec "$@"`, "sh"}, k.args()), Stdout: out})
	if err != nil {
		t.Fatal(err)
	}
	time.Sleep(300 * time.Millisecond)
	if ticks := k.all(); len(ticks) > 0 {
		t.Errorf("it ran %d times before it was started", len(ticks))
	}
	env := []string{"PATH=" + os.Getenv("PATH"), "NONE=", "TWO=a\nb = c", "LONG=" + strings.Repeat("x", 100_000)} // more than a pipe holds
	g, err := p.Start(env, Allow(elapsed()+time.Minute))
	if err != nil {
		t.Fatal(err)
	}
	k.runs()
	if err := g.Close(); err != nil {
		t.Error(err)
	}
	text, err := os.ReadFile(out.Name())
	if err != nil {
		t.Fatal(err)
	}
	got := strings.Split(strings.TrimSuffix(string(text), "\x00"), "\x00")
	got = slices.DeleteFunc(got, func(v string) bool { // which the shell sets
		return strings.HasPrefix(v, "PWD=") || strings.HasPrefix(v, "OLDPWD=") || strings.HasPrefix(v, "SHLVL=") || strings.HasPrefix(v, "_=")
	})
	slices.Sort(got)
	slices.Sort(env)
	if !slices.Equal(got, env) {
		t.Errorf("its environment is %.200q, want %.200q", got, env)
	}
}

// A guard that has died before anything was started is replaced.
func TestGuardDiesBeforeTheStart(t *testing.T) {
	p, err := Prepare(Command{Args: []string{"sleep", "1000"}})
	if err != nil {
		t.Fatal(err)
	}
	guard := 0
	eventually(t, "the guard", func() bool {
		entries, _ := os.ReadDir("/proc")
		for _, e := range entries {
			name, _ := os.ReadFile("/proc/" + e.Name() + "/comm")
			if s, ok := procstat.Read(e.Name()); ok && s.Parent == os.Getpid() && string(name) == "repolock-guard\n" {
				guard, _ = strconv.Atoi(e.Name())
			}
		}
		return guard != 0
	})
	if err := unix.Kill(guard, unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	eventually(t, "its end", func() bool { return !exists(guard) })
	g, err := p.Start(os.Environ(), Allow(elapsed()+time.Minute))
	if err != nil {
		t.Fatal(err)
	}
	if now := guardPid(g); now == 0 || now == guard {
		t.Errorf("its guard is %d", now)
	}
	if err := g.Unpause(); err != nil { // it answers
		t.Error(err)
	}
	if err := g.Close(); err != nil {
		t.Error(err)
	}
}
