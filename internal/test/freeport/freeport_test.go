package freeport

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"testing"

	"github.com/repolock/repolock/internal/test/rounds"
)

const perProcess = 500

// TestMain gives out ports and keeps them until its stdin ends, if TestFree runs it so.
func TestMain(m *testing.M) {
	if os.Getenv("PORT_TEST_CHILD") == "" {
		os.Exit(m.Run())
	}
	for range perProcess {
		fmt.Println(Free())
	}
	_, _ = io.Copy(io.Discard, os.Stdin)
}

// TestFree: a port belongs to one process at a time, although none of them listens on it.
func TestFree(t *testing.T) {
	seen := map[int]bool{}
	for range 4 {
		child := exec.Command(os.Args[0])
		child.Env = append(os.Environ(), "PORT_TEST_CHILD=1")
		stdin, err := child.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		stdout, err := child.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := child.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			_ = stdin.Close()
			_ = child.Wait()
		})
		out := bufio.NewReader(stdout)
		for range perProcess {
			var n int
			var failed string
			if _, err := fmt.Fscanln(out, &n, &failed); err != nil || failed != "<nil>" || n < 20000 || n >= 30000 || seen[n] {
				t.Fatalf("%d, %s, %v; seen %v", n, failed, err, seen[n])
			}
			seen[n] = true
		}
	}
}

// TestListensAgain: a port is free as soon as its listener is closed, although this process
// starts others all the time.
func TestListensAgain(t *testing.T) {
	ctx, stop := context.WithCancel(t.Context())
	var starts sync.WaitGroup
	for range 4 {
		starts.Go(func() {
			for ctx.Err() == nil {
				if err := exec.Command("true").Run(); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	defer starts.Wait()
	defer stop()
	for range rounds.Fewer(300, 60) {
		port, err := Free()
		if err != nil {
			t.Fatal(err)
		}
		for range 10 {
			l, err := Listen(fmt.Sprintf("127.0.0.1:%d", port))
			if err != nil {
				t.Fatal(err)
			}
			if err := l.Close(); err != nil {
				t.Fatal(err)
			}
		}
	}
}
