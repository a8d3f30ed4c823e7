package repository_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/repolock/repolock/internal/test/rounds"
	"github.com/repolock/repolock/locking"
	"github.com/repolock/repolock/locking/lockingtest"
	"github.com/repolock/repolock/locking/repository"
	"github.com/repolock/repolock/store/dir"
)

// serveEnv names the directory whose locks this process is to serve.
const serveEnv = "REPOLOCK_TEST_SERVE"

func TestMain(m *testing.M) {
	path := os.Getenv(serveEnv)
	if path == "" {
		os.Exit(m.Run())
	}
	b, err := onDisk(context.Background(), path)
	if err == nil {
		err = lockingtest.Serve(b, os.Stdin, os.Stdout)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func onDisk(ctx context.Context, path string) (*repository.Backend, error) {
	s, err := dir.Open(ctx, path, dir.Options{})
	if err != nil {
		return nil, err
	}
	return repository.New(s, repository.Options{})
}

// process starts another process with a client, which the test can kill.
func process(t *testing.T, path string) (locking.Backend, *exec.Cmd) {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(exe)
	cmd.Env = append(os.Environ(), serveEnv+"="+path)
	cmd.Stderr = os.Stderr
	return lockingtest.Start(t, cmd), cmd
}

// TestTwoProcesses: the backend keeps the contract between processes, by the machine's clock.
func TestTwoProcesses(t *testing.T) {
	t.Parallel()
	path := t.TempDir()
	lockingtest.Run(t, lockingtest.Config{
		New: func(t *testing.T) locking.Backend {
			b, err := onDisk(t.Context(), path)
			if err != nil {
				t.Fatal(err)
			}
			return b
		},
		Other: func(t *testing.T) locking.Backend {
			b, _ := process(t, path)
			return b
		},
		Expires: true, TTL: ttl,
		Rounds: rounds.Fewer(10, 3), // two acquirers that meet pause for a second
		Limit:  5 * time.Minute,
	})
}

// TestKilled: the lock of a process that was killed is free one ttl after its last refresh.
func TestKilled(t *testing.T) {
	t.Parallel()
	path := t.TempDir()
	holder, cmd := process(t, path)
	began := time.Now()
	if _, ok, err := holder.TryLock(t.Context(), key, ttl); !ok || err != nil {
		t.Fatal(ok, err)
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	killed := time.Now()
	b, err := onDisk(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	for {
		h, ok, err := b.TryLock(t.Context(), key, ttl)
		if err != nil {
			t.Fatal(err)
		}
		if ok {
			if held := time.Since(began); held < ttl {
				t.Errorf("free %v after it was acquired", held)
			}
			t.Logf("free %v after the kill, with a ttl of %v", time.Since(killed).Round(time.Millisecond), ttl)
			if err := b.Release(t.Context(), h); err != nil {
				t.Error(err)
			}
			return
		}
		time.Sleep(100 * time.Millisecond)
	}
}
