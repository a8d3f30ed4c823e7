//go:build linux

package procgroup

import (
	"fmt"
	"os"
	"sync"
	"testing"

	"golang.org/x/sys/unix"
)

func init() { programs["threads"] = threadsMain }

// threadsMain reserves threads, and prints how many it has before and while most of them
// are in use.
func threadsMain([]string) {
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
	p := launch(t, self("threads"))
	var before, later int
	line := p.expect("threads ")
	if _, err := fmt.Sscanf(line, "threads %d %d", &before, &later); err != nil {
		t.Fatal(line, err)
	}
	// One or two are on their way from one use to the next at any moment.
	if before < threads || later > before+2 {
		t.Errorf("%d threads, then %d", before, later)
	}
}
