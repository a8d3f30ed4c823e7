//go:build unix

package beads

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/repolock/repolock/internal/fault"
	"github.com/repolock/repolock/internal/test/assert"
	"github.com/repolock/repolock/internal/test/lockcheck"
	"github.com/repolock/repolock/internal/test/rounds"
	"github.com/repolock/repolock/locking"
	"github.com/repolock/repolock/locking/lockingtest"
)

// contenderEnv names the directory in which this process contends for the lock until its stdin ends. serverEnv names
// the directory whose lock this process serves to another one.
const (
	contenderEnv = "REPOLOCK_TEST_BEADS"
	serverEnv    = "REPOLOCK_TEST_SERVE_BEADS"
)

func TestMain(m *testing.M) {
	if dir := os.Getenv(serverEnv); dir != "" {
		if err := serve(dir); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	dir := os.Getenv(contenderEnv)
	if dir == "" {
		os.Exit(m.Run())
	}
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(0)
	}()
	fmt.Println("error", contend(dir))
	os.Exit(1)
}

func serve(dir string) error {
	b, err := Open(dir, Options{Clock: new(leap)})
	if err != nil {
		return err
	}
	return lockingtest.Serve(b, os.Stdin, os.Stdout)
}

// TestTwoProcesses: the backend keeps the contract between processes.
func TestTwoProcesses(t *testing.T) {
	dir := t.TempDir()
	lockingtest.Run(t, lockingtest.Config{
		New: func(t *testing.T) locking.Backend { return client(t, dir, Options{}) },
		Other: func(t *testing.T) locking.Backend {
			cmd := exec.Command(os.Args[0])
			cmd.Env = append(os.Environ(), serverEnv+"="+dir)
			cmd.Stderr = os.Stderr
			return lockingtest.Start(t, cmd)
		},
		Keys:   []string{Key},
		TTL:    time.Millisecond,
		Rounds: rounds.Fewer(100, 20),
	})
	left(t, dir)
}

// contend acquires and releases the lock for ever.
func contend(dir string) error {
	b, err := Open(dir, Options{Clock: new(leap)})
	if err != nil {
		return err
	}
	witness, err := os.Create(dir + ".witness")
	for err == nil {
		err = inside(b, witness)
	}
	return err
}

// inside acquires the lock, if it is free, and takes the witness, which no other holder can have.
func inside(b *Backend, witness *os.File) error {
	h, ok, err := b.TryLock(context.Background(), Key, ttl)
	if err != nil {
		return err
	}
	if !ok {
		fmt.Println("refused")
		return nil
	}
	if err := syscall.Flock(int(witness.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		return fmt.Errorf("two holders: %w", err)
	}
	fmt.Println("inside")
	if err := b.Renew(context.Background(), h); err != nil {
		return err
	}
	if err := syscall.Flock(int(witness.Fd()), syscall.LOCK_UN); err != nil {
		return err
	}
	return b.Release(context.Background(), h)
}

// contender starts a process that contends, and returns a function that kills it when it has printed so many
// more lines. These are "inside", or "refused" while another process has the lock.
func contender(t *testing.T, dir string) (killAfter func(lines int)) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), contenderEnv+"="+dir)
	cmd.Stderr = os.Stderr
	stdin, err1 := cmd.StdinPipe()
	stdout, err2 := cmd.StdoutPipe()
	assert.OK(t, fault.Join(err1, err2, cmd.Start()))
	t.Cleanup(func() { stdin.Close() })
	out := bufio.NewScanner(stdout)
	return func(lines int) {
		t.Helper()
		for range lines {
			if !out.Scan() || out.Text() != "inside" && out.Text() != "refused" {
				t.Fatalf("a contender has ended: %q", out.Text())
			}
		}
		assert.Is(t, cmd.Process.Kill(), nil)
		_ = cmd.Wait()
	}
}

// TestProcesses: two processes contend for the lock beside this one, and are killed at any point. Never do two
// processes hold it, and no holder loses it. The next one acquires a killed process' lock. Nothing is left.
func TestProcesses(t *testing.T) {
	dir := filepath.Join(t.TempDir(), ".beads")
	assert.OK(t, os.Mkdir(dir, 0o700))
	witness, err := os.Create(dir + ".witness")
	assert.OK(t, err)
	defer witness.Close()
	b := client(t, dir, Options{Clock: tomorrow{new(leap)}})
	for round := range rounds.Fewer(100, 20) {
		one, two := contender(t, dir), contender(t, dir)
		one(round % 7)
		two(round % 11)
		h := lockcheck.Acquire(t, b, Key, ttl)
		if err := syscall.Flock(int(witness.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
			t.Fatalf("round %d: two holders: %v", round, err)
		}
		contender(t, dir)(2) // which is refused, or the witness shows it
		lockcheck.Renew(t, b, h)
		assert.OK(t, syscall.Flock(int(witness.Fd()), syscall.LOCK_UN))
		lockcheck.Release(t, b, h)
	}
	assert.Is(t, b.Cleanup(t.Context()), nil)
	left(t, dir)
}

// tomorrow is a clock whose date is later.
type tomorrow struct{ *leap }

func (c tomorrow) Now() time.Time { return c.leap.Now().Add(25 * time.Hour) }
