//go:build unix

// Package e2e runs the real command around real processes.
package e2e

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// bin is the directory of the repolock that is tested.
var bin string

// standIns are programs that this one can be, by the name that it is started by.
var standIns = map[string]func(args []string) error{}

func TestMain(m *testing.M) {
	if run := standIns[filepath.Base(os.Args[0])]; run != nil {
		if err := run(os.Args[1:]); err != nil {
			fmt.Fprintf(os.Stderr, "%v\n", err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	dir, err := os.MkdirTemp("", "repolock-e2e-")
	if err != nil {
		panic(err)
	}
	bin = dir
	build := exec.Command("go", "build", "-o", filepath.Join(dir, "repolock"), "../cmd/repolock")
	if out, err := build.CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "%v\n%s", err, out)
		os.Exit(1)
	}
	unignore()
	os.Setenv("REPOLOCK_CONFIG", "") // this machine's is nobody's business
	// These tests wait more than they work: they may do so side by side.
	flag.Parse()
	if err := flag.Set("test.parallel", "8"); err != nil {
		panic(err)
	}
	code := m.Run()
	_ = os.RemoveAll(dir)
	os.Exit(code)
}

// unignore makes the processes start with signals at their defaults, also under
// nohup: what is caught is reset by execve(2).
func unignore() {
	for _, sig := range []os.Signal{syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT} {
		if signal.Ignored(sig) {
			signal.Notify(make(chan os.Signal, 1), sig)
		}
	}
}

// ttl is the shortest that there is, so that the tests don't take long.
const ttl = 10 * time.Second

// site is a repository and what its users write beside it.
type site struct {
	t   *testing.T
	dir string
	// repo is the repository's URL, or path.
	repo string
	// env is what the processes have in their environment besides.
	env []string
	backend
}

// backend is what a site's repository lives on.
type backend interface {
	// away makes the repository unreachable, until back.
	away()
	back()
	// left lists what there is of locks.
	left() []string
}

func (s *site) path(name string) string { return filepath.Join(s.dir, name) }

// process is a repolock that runs.
type process struct {
	*exec.Cmd
	s      *site
	stderr bytes.Buffer
	done   chan struct{}
}

func (s *site) start(args ...string) *process {
	s.t.Helper()
	p := &process{Cmd: exec.Command(filepath.Join(bin, "repolock"), args...), s: s, done: make(chan struct{})}
	p.Dir = s.dir
	// If the group of these tests is orphaned, the kernel continues whoever is
	// stopped in it, which a test may have done on purpose: setpgid(2).
	p.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	p.Env = s.environ()
	p.Stdout = &p.stderr
	p.Stderr = &p.stderr
	if err := p.Start(); err != nil {
		s.t.Fatal(err)
	}
	go func() { _ = p.Wait(); close(p.done) }()
	s.t.Cleanup(func() {
		_ = p.Process.Signal(syscall.SIGCONT)
		_ = p.Process.Kill()
		<-p.done
		if s.t.Failed() {
			s.t.Logf("%v:\n%s", args, p.stderr.String())
		}
	})
	return p
}

func (s *site) environ() []string {
	env := append(os.Environ(), "REPOLOCK_REPO="+s.repo, "PATH="+bin+":"+os.Getenv("PATH"))
	return append(env, s.env...)
}

// hold starts a repolock around a ticking command, and waits until it runs.
func (s *site) hold(operation, name string, flags ...string) *process {
	s.t.Helper()
	args := append([]string{operation, "--ttl", ttl.String()}, flags...)
	p := s.start(append(args, ticks(name)...)...)
	s.until("the command of the "+operation+" to run", 15*time.Second, func() bool { return s.ticking(name) })
	return p
}

// end lets the command that hold started end, and wants it to have gone well.
func (p *process) end(name string) {
	p.s.t.Helper()
	p.s.touch("stop-" + name)
	if code := p.code(); code != 0 {
		p.s.t.Errorf("%s: exit code %d", name, code)
	}
}

// code waits for the exit code; a signal n is -n.
func (p *process) code() int {
	p.s.t.Helper()
	select {
	case <-p.done:
	case <-time.After(90 * time.Second):
		p.s.t.Fatalf("%v doesn't end", p.Args)
	}
	ws := p.ProcessState.Sys().(syscall.WaitStatus)
	if ws.Signaled() {
		return -int(ws.Signal())
	}
	return ws.ExitStatus()
}

func (p *process) signal(sig syscall.Signal) {
	p.s.t.Helper()
	if err := p.Process.Signal(sig); err != nil {
		p.s.t.Fatal(err)
	}
}

// until waits for a condition.
func (s *site) until(what string, most time.Duration, cond func() bool) {
	s.t.Helper()
	for end := time.Now().Add(most); !cond(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			s.t.Fatalf("waited %v in vain for: %s", most, what)
		}
	}
}

// freed waits until a prune gets in. It asks now and then: tests that do nothing but
// start processes would hold up all others.
func (s *site) freed() {
	s.t.Helper()
	s.until("the lock to free itself", 2*ttl, func() bool {
		if s.start("prune", "--ttl", ttl.String(), "--", "true").code() == 0 {
			return true
		}
		time.Sleep(400 * time.Millisecond)
		return false
	})
}

func (s *site) exists(name string) bool {
	_, err := os.Stat(s.path(name))
	return err == nil
}

func (s *site) touch(name string) {
	s.t.Helper()
	if err := os.WriteFile(s.path(name), nil, 0o600); err != nil {
		s.t.Fatal(err)
	}
}

// ticks is a command that writes the time into a file over and over, until the
// file stop-NAME exists: what it wrote shows when it ran.
func ticks(name string) []string {
	return []string{"--", "sh", "-c", `
echo $$ >pid-` + name + `
while [ ! -e stop-` + name + ` ]; do date +%s%N >>` + name + `; sleep 0.1; done`}
}

// times are when a ticking command ran.
func (s *site) times(name string) (times []time.Time) {
	s.t.Helper()
	raw, err := os.ReadFile(s.path(name))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		s.t.Fatal(err)
	}
	for line := range strings.Lines(string(raw)) {
		ns, err := strconv.ParseInt(strings.TrimSpace(line), 10, 64)
		if err == nil {
			times = append(times, time.Unix(0, ns))
		}
	}
	return times
}

// gap is the longest time in which a ticking command didn't run.
func gap(times []time.Time) (from time.Time, d time.Duration) {
	for i := range len(times) - 1 {
		if g := times[i+1].Sub(times[i]); g > d {
			from, d = times[i], g
		}
	}
	return from, d
}

// ticking reports whether a command runs now.
func (s *site) ticking(name string) bool {
	times := s.times(name)
	return len(times) > 0 && time.Since(times[len(times)-1]) < time.Second
}

// gone reports whether the process in a pid file is no more.
func (s *site) gone(pidfile string) bool {
	raw, err := os.ReadFile(s.path(pidfile))
	if err != nil {
		return false
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(raw)))
	if err != nil {
		return false
	}
	return syscall.Kill(pid, 0) == syscall.ESRCH
}

// nothingLeft: no lock is in the repository.
func (s *site) nothingLeft() {
	s.t.Helper()
	if left := s.left(); len(left) > 0 {
		s.t.Errorf("left over: %q", left)
	}
}
