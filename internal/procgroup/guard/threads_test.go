//go:build linux

package guard

import (
	"fmt"
	"os"
	"os/exec"
	"sync"
	"testing"

	"golang.org/x/sys/unix"
)

// The test binary is also the program that reserves threads.
func TestMain(m *testing.M) {
	if len(os.Args) == 2 && os.Args[1] == "threads" {
		threadsMain()
		return
	}
	os.Exit(m.Run())
}

// threadsMain reserves threads, and prints how many it has before and while most of them
// are in use.
func threadsMain() {
	count := func() int {
		tasks, _ := os.ReadDir("/proc/self/task")
		return len(tasks)
	}
	ReserveThreads()
	before := count()
	var blocked, done sync.WaitGroup
	var pipe [2]int
	if err := unix.Pipe(pipe[:]); err != nil {
		panic(err)
	}
	const used = threads - 4 // the runtime has some of its own
	blocked.Add(used)
	for range used {
		done.Go(func() {
			blocked.Done()
			_, _ = unix.Read(pipe[0], make([]byte, 1)) // a thread each
		})
	}
	blocked.Wait()
	fmt.Printf("threads %d %d\n", before, count())
	unix.Close(pipe[1])
	done.Wait()
}

// Reserved threads suffice: no other is started, which could fail.
func TestReserveThreads(t *testing.T) {
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command(exe, "threads").Output()
	if err != nil {
		t.Fatal(err)
	}
	var before, later int
	if _, err := fmt.Sscanf(string(out), "threads %d %d", &before, &later); err != nil {
		t.Fatalf("%q: %v", out, err)
	}
	// One or two are on their way from one use to the next at any moment.
	if before < threads || later > before+2 {
		t.Errorf("%d threads, then %d", before, later)
	}
}
