//go:build unix

// Package e2e runs the real command around real processes.
package e2e

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/repolock/repolock/internal/audit"
	"github.com/repolock/repolock/internal/identity"
	"github.com/repolock/repolock/internal/test/assert"
	"github.com/repolock/repolock/internal/test/states"
)

// bin is the directory of the repolock under test.
var bin string

// atEnd are called when all tests have ended.
var atEnd []func()

// standIns are programs that this binary can be, by the name that starts it.
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
	// go run keeps the program that it has linked, and go build doesn't.
	build := exec.Command("go", "run", "-buildvcs=false", "-exec", "cp", "../cmd/repolock", filepath.Join(dir, "repolock"))
	if out, err := build.CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "%v\n%s", err, out)
		os.Exit(1)
	}
	unignore()
	// These tests spend most of their time waiting.
	flag.Parse()
	if err := flag.Set("test.parallel", "16"); err != nil {
		panic(err)
	}
	if run := os.Getenv("REPOLOCK_E2E_RUN"); run != "" {
		names := chosen(run)
		if err := flag.Set("test.run", "^("+strings.Join(names, "|")+")$"); err != nil || len(names) == 0 {
			panic(fmt.Sprintf("REPOLOCK_E2E_RUN=%s is no run: %v", run, err))
		}
	}
	code := m.Run()
	for _, f := range atEnd {
		f()
	}
	_ = os.RemoveAll(dir)
	os.Exit(code)
}

// unignore makes the processes start with default signals, also under nohup: execve(2) resets
// caught signals.
func unignore() {
	for _, sig := range []os.Signal{syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT} {
		if signal.Ignored(sig) {
			signal.Notify(make(chan os.Signal, 1), sig)
		}
	}
}

// This comes before each init, which can add to the environment.
var _ = neutral()

// neutral removes the variables that would make these tests depend on the user and the
// machine. A test that needs a terminal sets TERM. A stand-in keeps its environment.
func neutral() struct{} {
	if !strings.HasSuffix(os.Args[0], ".test") {
		return struct{}{}
	}
	for _, v := range os.Environ() {
		name, _, _ := strings.Cut(v, "=")
		prefix, _, _ := strings.Cut(name, "_")
		switch {
		case strings.HasPrefix(name, "REPOLOCK_E2E_"):
		case slices.Contains([]string{"REPOLOCK", "AWS", "MINIO", "B2", "MC", "RESTIC", "BORG", "RCLONE", "KOPIA", "CLOUDSTIC"}, prefix),
			slices.Contains([]string{"TERM", "COLUMNS", "LINES", "NO_COLOR", "XDG_CONFIG_HOME", "XDG_RUNTIME_DIR"}, name):
			os.Unsetenv(name)
		}
	}
	os.Setenv("REPOLOCK_CONFIG", "") // no file
	if cache, err := os.UserCacheDir(); err == nil && os.Getenv("GOCACHE") == "" {
		os.Setenv("GOCACHE", filepath.Join(cache, "go-build")) // for the builds
	}
	os.Setenv("XDG_CACHE_HOME", os.DevNull) // repolock remembers nothing there, and repeats hints that it shows once
	syscall.Umask(0o022)
	return struct{}{}
}

// hang is the longest wait for an event. Only a hang reaches it, however busy the machine is. For a mutant it
// is shorter, since mutants often hang.
var hang = 10 * time.Minute

func init() {
	if n := os.Getenv("MUTANT_ON"); n != "" && n != "0" {
		hang = 20 * time.Second
	}
}

// ttl is the shortest possible one, for tests in which locks expire.
const ttl = 10 * time.Second

// lasting is a ttl within which nothing expires and nothing is refreshed, however busy the
// machine is.
const lasting = time.Hour

// site is a repository and the files that its users write beside it.
type site struct {
	t   *testing.T
	dir string
	// repo is the repository's URL, or path.
	repo string
	// env is added to the environment of the processes.
	env []string
	backend
}

// backend is the store of a site's repository.
type backend interface {
	// away makes the repository unreachable, until back.
	away()
	back()
	// left lists the objects of locks.
	left() []string
}

func (s *site) path(name string) string { return filepath.Join(s.dir, name) }

// process is a running repolock.
type process struct {
	*exec.Cmd
	s      *site
	stderr lockedBuffer // and stdout
	done   chan struct{}
	quiet  bool // not printed when the test fails
}

func (s *site) start(args ...string) *process {
	s.t.Helper()
	return s.run(exec.Command(filepath.Join(bin, "repolock"), args...))
}

// run starts a process in a new process group. It ends with the test.
func (s *site) run(cmd *exec.Cmd) *process {
	s.t.Helper()
	p := &process{Cmd: cmd, s: s, done: make(chan struct{})}
	p.Dir = s.dir
	p.Env = s.environ()
	p.Stdout = &p.stderr
	p.Stderr = &p.stderr
	if p.SysProcAttr == nil {
		p.SysProcAttr = &syscall.SysProcAttr{}
	}
	// If the group of these tests is orphaned, the kernel continues all its stopped processes,
	// and a test might have stopped them on purpose: setpgid(2).
	p.SysProcAttr.Setpgid = true
	assert.OK(s.t, p.Start())
	go func() { _ = p.Wait(); close(p.done) }()
	s.t.Cleanup(func() {
		_ = p.Process.Signal(syscall.SIGCONT)
		_ = p.Process.Kill()
		<-p.done
		if s.t.Failed() && !p.quiet {
			s.t.Logf("%v: %v:\n%s", cmd.Args[1:], p.ProcessState, p.stderr.String())
		}
	})
	return p
}

func (s *site) environ() []string {
	env := append(os.Environ(), "REPOLOCK_REPO="+s.repo, "PATH="+bin+":"+os.Getenv("PATH"))
	return append(env, s.env...)
}

// hold starts a repolock around a ticking command, and waits until the command runs. The lock outlasts the
// test unless a flag sets its ttl.
func (s *site) hold(operation, name string, flags ...string) *process {
	s.t.Helper()
	args := append([]string{operation, "--ttl", lasting.String()}, flags...)
	args = append(args, ticks(name)...)
	for start := time.Now(); ; {
		p := s.start(args...)
		s.until("a store that answers in time", func() bool { return p.ended() || len(s.times(name)) > 0 })
		if len(s.times(name)) > 0 {
			return p
		}
		// The time for an answer is short if the ttl is.
		code := p.code()
		assert.Need(s.t, code == 69 && time.Since(start) <= hang, "%s has exit code %d before %s has ticked", operation, code, name)
	}
}

// brief are flags of hold, for a lock that expires soon.
var brief = []string{"--ttl", ttl.String()}

// end lets the command that hold started end. It must succeed.
func (p *process) end(name string) {
	p.s.t.Helper()
	p.s.touch("stop-" + name)
	p.exits(0)
}

// code waits for the exit code; a signal n is -n.
func (p *process) code() int {
	p.s.t.Helper()
	select {
	case <-p.done:
	case <-time.After(hang):
		p.s.t.Fatalf("%v doesn't end", p.Args)
	}
	ws := p.ProcessState.Sys().(syscall.WaitStatus)
	if ws.Signaled() {
		return -int(ws.Signal())
	}
	return ws.ExitStatus()
}

func (p *process) ended() bool { return closed(p.done) }

// waitFor waits for a condition, which holds before the channel is closed if it ever does. A nil channel never
// is.
func waitFor(t testing.TB, what string, ended <-chan struct{}, cond func() bool) {
	t.Helper()
	for end := time.Now().Add(hang); ; time.Sleep(20 * time.Millisecond) {
		over := closed(ended)
		switch {
		case cond():
			return
		case over:
			t.Fatalf("it ended before: %s", what)
		case time.Now().After(end):
			t.Fatalf("waited %v for: %s", hang, what)
		}
	}
}

func closed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// until waits for a condition.
func (s *site) until(what string, cond func() bool) { s.t.Helper(); waitFor(s.t, what, nil, cond) }

// reaches waits for a condition, which holds before the process ends if it ever does.
func (p *process) reaches(what string, cond func() bool) {
	p.s.t.Helper()
	waitFor(p.s.t, what, p.done, cond)
}

// says waits until the process prints a text.
func (p *process) says(what string) {
	p.s.t.Helper()
	p.reaches(fmt.Sprintf("the output %q", what), func() bool { return strings.Contains(p.stderr.String(), what) })
}

// freed waits until a prune acquires the lock, and returns when. A prune that begins after due must not be
// refused. freed tries once a second, because the start of processes slows down all other tests.
func (s *site) freed(due time.Time) (in time.Time) {
	s.t.Helper()
	s.until("the lock to free itself", func() bool {
		began := time.Now()
		p := s.start(append([]string{"prune"}, append(brief, "--", "sh", "-c", "date +%s%N >freed")...)...)
		switch code := p.code(); {
		case code == 0:
			in = s.times("freed")[0]
			return true
		case code == 75 && began.After(due):
			s.t.Fatalf("refused %v after it had to be free: %s", began.Sub(due), p.stderr.String())
		}
		time.Sleep(time.Second)
		return false
	})
	return in
}

func (s *site) exists(name string) bool {
	_, err := os.Stat(s.path(name))
	return err == nil
}

// read returns the text of a file.
func read(t testing.TB, path string) string {
	t.Helper()
	raw, err := os.ReadFile(path)
	assert.OK(t, err)
	return string(raw)
}

func (s *site) touch(name string) { s.t.Helper(); s.write(name, "") }

// write writes a file, which can be executed, and the directory that it is in.
func (s *site) write(name, text string) {
	s.t.Helper()
	s.mkdir(filepath.Dir(name))
	assert.OK(s.t, os.WriteFile(s.path(name), []byte(text), 0o700))
}

func (s *site) mkdir(names ...string) {
	s.t.Helper()
	for _, name := range names {
		assert.OK(s.t, os.MkdirAll(s.path(name), 0o700))
	}
}

// ticks is a command that writes the time into a file over and over, until the file stop-NAME
// exists. The file shows when the command ran.
func ticks(name string) []string {
	return []string{"--", "sh", "-c", `
echo $$ >pid-` + name + `
while [ ! -e stop-` + name + ` ]; do date +%s%N >>` + name + `; sleep 0.2; done`}
}

// times returns when a ticking command ran.
func (s *site) times(name string) (times []time.Time) {
	s.t.Helper()
	raw, err := os.ReadFile(s.path(name))
	assert.Need(s.t, err == nil || errors.Is(err, os.ErrNotExist), "%v", err)
	for line := range strings.Lines(string(raw)) {
		ns, err := strconv.ParseInt(strings.TrimSpace(line), 10, 64)
		if err == nil {
			times = append(times, time.Unix(0, ns))
		}
	}
	return times
}

// last returns when a ticking command ran last; the zero time if it never did.
func (s *site) last(name string) time.Time {
	s.t.Helper()
	if times := s.times(name); len(times) > 0 {
		return times[len(times)-1]
	}
	return time.Time{}
}

// ranWithin checks that a command that lost its lock's server or holder at a time ran for a ttl at most.
func (s *site) ranWithin(name string, since time.Time) {
	s.t.Helper()
	ran := s.last(name).Sub(since)
	assert.That(s.t, ran <= ttl, "%s ran for %v without its lock", name, ran)
}

// ticksOn waits until a process' command ticks after this moment.
func (p *process) ticksOn(name string) {
	p.s.t.Helper()
	now := time.Now()
	p.reaches(name+" to tick", func() bool { return p.s.last(name).After(now) })
}

// lockedBuffer can be read while it is written.
type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// ended reports whether a process has ended. On a system without an init, as in a container, it can
// stay as a zombie.
func ended(pid int) bool {
	_, runs := identity.Of(pid)
	return !runs
}

// contains checks that the output of a process has all texts.
func (p *process) contains(texts ...string) {
	p.s.t.Helper()
	for _, text := range texts {
		assert.That(p.s.t, strings.Contains(p.stderr.String(), text), "%v: %q isn't in its output", p.Args[1:], text)
	}
}

// exits waits for the end of a process, and checks its exit code.
func (p *process) exits(want int) {
	p.s.t.Helper()
	assert.Equal(p.s.t, p.code(), want, "%v: exit code", p.Args[1:])
}

func (p *process) signal(sig syscall.Signal) {
	p.s.t.Helper()
	assert.OK(p.s.t, p.Process.Signal(sig))
}

// leased returns when the lease of the one holder ends, by its object in the store.
func (s *site) leased() time.Time {
	s.t.Helper()
	repo := s.repo
	if strings.HasPrefix(repo, "sftp:") { // in this process there is no ssh for the test: sftp_test.go
		repo = s.path("repo")
	}
	locks, err := newLocker(s.t, repo, "").Status(s.t.Context())
	assert.OK(s.t, err)
	assert.Need(s.t, len(locks) == 1, "locks: %v", locks)
	return locks[0].ModTime.Add(locks[0].TTL)
}

// stops waits until a ticking command is stopped, and checks that it doesn't tick any more.
func (s *site) stops(name string) {
	s.t.Helper()
	s.until(name+" to be stopped", func() bool {
		time.Sleep(200 * time.Millisecond)
		return states.Stopped(s.pidIn("pid-" + name))
	})
	last := s.last(name)
	time.Sleep(time.Second)
	assert.Equal(s.t, s.last(name), last, "the last tick of %s, which is stopped", name)
}

// pidIn returns the pid that a command has written into a file, or writes.
func (s *site) pidIn(name string) (pid int) {
	s.t.Helper()
	s.until("a pid in "+name, func() bool {
		raw, _ := os.ReadFile(s.path(name))
		pid, _ = strconv.Atoi(strings.TrimSpace(string(raw)))
		return pid > 0
	})
	return pid
}

// gone reports whether the process in a pid file has ended.
func (s *site) gone(pidfile string) bool { return ended(s.pidIn(pidfile)) }

// records reads an audit log.
func (s *site) records(name string) []audit.Record {
	s.t.Helper()
	records, skipped, err := audit.Read(strings.NewReader(read(s.t, s.path(name))))
	assert.That(s.t, err == nil && skipped == 0, "%d lines skipped, %v", skipped, err)
	return records
}

// nothingLeft checks that no lock is in the repository.
func (s *site) nothingLeft() {
	s.t.Helper()
	assert.Equal(s.t, s.left(), nil, "left over")
}

// newSite returns a site with a repository in a directory.
func newSite(t *testing.T) *site {
	t.Helper()
	t.Parallel()
	s := &site{t: t, dir: t.TempDir()}
	s.repo = s.path("repo")
	s.backend = directory{s}
	s.mkdir("repo")
	return s
}

// directory is a repository on a local disk, which can be unmounted.
type directory struct{ s *site }

func (d directory) away() { d.rename("repo", "unmounted") }

func (d directory) back() { d.rename("unmounted", "repo") }

func (d directory) rename(from, to string) {
	d.s.t.Helper()
	assert.OK(d.s.t, os.Rename(d.s.path(from), d.s.path(to)))
}

// left leaves out the last successes of --once-per, which outlive their locks.
func (d directory) left() []string {
	return slices.DeleteFunc(d.s.files("repo/index"), func(name string) bool { return strings.Contains(name, "/lock-once/") })
}

// files lists the files below a directory, which can be missing. A file can go meanwhile.
func (s *site) files(dir string) (all []string) {
	_ = filepath.WalkDir(s.path(dir), func(name string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			all = append(all, name)
		}
		return nil
	})
	return all
}
