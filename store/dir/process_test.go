package dir_test

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"hash/crc32"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/repolock/repolock/internal/test/counter"
	"github.com/repolock/repolock/internal/test/rounds"
	"github.com/repolock/repolock/store"
	"github.com/repolock/repolock/store/dir"
)

// roleEnv makes this test binary another process of a test.
const roleEnv = "REPOLOCK_TEST_ROLE"

var roles = map[string]func(s store.Store) error{
	"race":      race,
	"overwrite": overwrite,
}

func TestMain(m *testing.M) {
	name := os.Getenv(roleEnv)
	if name == "" {
		os.Exit(m.Run())
	}
	if err := play(name); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// scripts are processes for the tests of one system. They make their own checks, and end with
// an error.
var scripts = map[string]func(path string) error{}

// play waits for a line on stdin, so that all processes start at once.
func play(name string) error {
	if script, ok := scripts[name]; ok {
		return script(os.Args[1])
	}
	s, err := dir.Open(background, os.Args[1], dir.Options{})
	if err != nil {
		return err
	}
	fmt.Println("ready")
	if _, err := bufio.NewReader(os.Stdin).ReadString('\n'); err != nil {
		return err
	}
	return roles[name](s)
}

// process is another process under way.
type process struct {
	*exec.Cmd
	stdin  interface{ Write([]byte) (int, error) }
	out    *bufio.Reader
	stderr *bytes.Buffer
}

// start starts a process in a role, and waits until it is ready.
func start(t *testing.T, role, path string) *process {
	t.Helper()
	exe, err := os.Executable()
	must(t, err)
	p := &process{Cmd: exec.CommandContext(t.Context(), exe, path), stderr: new(bytes.Buffer)}
	p.Env = append(os.Environ(), roleEnv+"="+role)
	p.Stderr = p.stderr
	stdin, err := p.StdinPipe()
	must(t, err)
	stdout, err := p.StdoutPipe()
	must(t, err)
	p.stdin, p.out = stdin, bufio.NewReader(stdout)
	must(t, p.Start())
	if line, err := p.out.ReadString('\n'); line != "ready\n" {
		t.Fatalf("%s isn't ready: %q, %v, %s", role, line, err, p.stderr)
	}
	return p
}

func (p *process) release() { _, _ = p.stdin.Write([]byte("\n")) }

const raceRounds = 50

// race tries to be the first at each key, and prints the keys at which it was. Each time it counts one up.
func race(s store.Store) error {
	for round := range raceRounds {
		key := fmt.Sprintf("index/locks/%d/lock.exclusive", round)
		_, err := s.Put(background, key, fmt.Append(nil, os.Getpid()), store.PutOptions{IfAbsent: true})
		if err == nil {
			fmt.Println(key, os.Getpid())
		} else if !errors.Is(err, store.ErrPrecondition) {
			return err
		}
		if _, err := counter.Increment(background, s, "counter"); err != nil {
			return err
		}
	}
	return nil
}

// overwrite writes bodies of all sizes, over a few keys, until it is killed.
func overwrite(s store.Store) error {
	for n := 0; ; n++ {
		key := fmt.Sprintf("index/lock.shared/%d", n%7)
		body := strings.Repeat(fmt.Sprintf("%08d", n), 1+n%20_000)
		body = fmt.Sprintf("%08x", crc32.ChecksumIEEE([]byte(body))) + body
		if _, err := s.Put(background, key, []byte(body), store.PutOptions{IfAbsent: n%11 == 0}); err != nil &&
			!errors.Is(err, store.ErrPrecondition) {
			return err
		}
		if n == 20 {
			fmt.Println("going")
		}
		if n%13 == 0 {
			if err := s.Delete(background, key); err != nil {
				return err
			}
		}
	}
}

// TestProcesses: of processes that put a key if it is absent one wins, and none loses an increment of
// another.
func TestProcesses(t *testing.T) {
	s, path := fresh(t)
	put(t, s, "counter", "0")
	var running []*process
	for range rounds.Fewer(8, 4) {
		running = append(running, start(t, "race", path))
	}
	for _, p := range running {
		p.release()
	}
	var out strings.Builder
	for _, p := range running {
		_, read := p.out.WriteTo(&out)
		if err := errors.Join(read, p.Wait()); err != nil {
			t.Errorf("%v: %s", err, p.stderr)
		}
	}
	if got, want := read(t, s, "counter"), fmt.Sprint(len(running)*raceRounds); got != want {
		t.Errorf("%s of %s increments", got, want)
	}
	won := map[string]string{}
	lines := strings.Fields(out.String())
	for i := 0; i < len(lines); i += 2 {
		key, pid := lines[i], lines[i+1]
		if other, found := won[key]; found {
			t.Errorf("%s was won by %s and by %s", key, other, pid)
		}
		if won[key] = pid; read(t, s, key) != pid {
			t.Errorf("%s was won by %s and holds %s", key, pid, read(t, s, key))
		}
	}
	if len(won) != raceRounds {
		t.Errorf("%d of %d keys have a winner", len(won), raceRounds)
	}
	tidy(t, path)
}

// TestKilled: after a process is killed in the middle of its puts, no listed object is half
// written, and its leftovers don't delay the next process.
func TestKilled(t *testing.T) {
	s, path := fresh(t)
	for range rounds.Fewer(20, 5) {
		p := start(t, "overwrite", path)
		p.release()
		if line, err := p.out.ReadString('\n'); line != "going\n" {
			t.Fatalf("%q, %v, %s", line, err, p.stderr)
		}
		must(t, p.Process.Kill())
		_ = p.Wait() // its error is that it was killed
		page, err := s.List(t.Context(), "", "")
		must(t, err)
		for _, obj := range page.Objects {
			body := read(t, s, obj.Key)
			if len(body) < 8 || body[:8] != fmt.Sprintf("%08x", crc32.ChecksumIEEE([]byte(body[8:]))) {
				t.Errorf("%s is torn: %d bytes", obj.Key, len(body))
			}
		}
		put(t, s, "index/lock.exclusive", "next")
		remove(t, s, "index/lock.exclusive")
	}
}
