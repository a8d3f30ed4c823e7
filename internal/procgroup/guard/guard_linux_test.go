package guard

import (
	"os"
	"os/exec"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	"github.com/repolock/repolock/internal/test/assert"
)

// TestZombie: a process is a zombie only if none of its threads runs.
func TestZombie(t *testing.T) {
	const rest = " 1 7 7 0 -1 4194368 1 2 3 4 5 6 7 8 20 0 "
	for stat, want := range map[string]bool{
		"5 (sh) S" + rest + "1 0 99":      false,
		"5 (sh) T" + rest + "1 0 99":      false,
		"5 (a) Z 1 (b) D" + rest + "1 0":  false,
		"5 (sh) Z" + rest + "2 0 99":      false, // its first thread has ended
		"5 (sh) Z" + rest + "11 0 99":     false,
		"5 (sh) Z":                        false,
		"":                                false,
		"5 (sh) Z" + rest + "1 0 99":      true,
		"5 (sh) X" + rest + "0 0 99":      true,
		"5 (a) S 1 (b) Z" + rest + "1 99": true,
	} {
		assert.Equal(t, zombie([]byte(stat)), want, "%q", stat)
	}
}

// TestEnded: a group whose last process is a zombie has ended.
func TestEnded(t *testing.T) {
	c := exec.Command("sleep", "3600")
	c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	assert.OK(t, c.Start())
	is := func(state string, want bool) {
		t.Helper()
		assert.Equal(t, ended(c.Process.Pid), want, "it %s", state)
	}
	is("runs", false)
	_ = c.Process.Signal(syscall.SIGSTOP)
	is("is stopped", false)
	_ = c.Process.Kill()
	// Wait for its end, and don't reap it.
	assert.OK(t, unix.Waitid(unix.P_PID, c.Process.Pid, nil, unix.WEXITED|unix.WNOWAIT, nil))
	is("is a zombie", true)
	_ = c.Wait()
	is("is gone", true)
}

// TestAwaitEnd: awaitEnd waits for a zombie, but only for 10 s.
func TestAwaitEnd(t *testing.T) {
	c := exec.Command("true")
	assert.OK(t, c.Start())
	assert.OK(t, unix.Waitid(unix.P_PID, c.Process.Pid, nil, unix.WEXITED|unix.WNOWAIT, nil))
	waits := func() (waited time.Duration) {
		synctest.Test(t, func(*testing.T) {
			began := time.Now()
			awaitEnd(c.Process.Pid)
			waited = time.Since(began)
		})
		return waited
	}
	assert.Equal(t, waits().Round(time.Second), 10*time.Second)
	_ = c.Wait()
	assert.Equal(t, waits(), 0)
}

// TestReserveThreads: repolock's reserved threads are enough, so that Go's runtime starts no other. The test runs in
// a process of its own, without the threads of other tests.
func TestReserveThreads(t *testing.T) {
	if os.Getenv("RESERVE") == "" {
		c := exec.Command(os.Args[0], "-test.run=^TestReserveThreads$")
		c.Env = append(os.Environ(), "RESERVE=1")
		out, err := c.CombinedOutput()
		assert.That(t, err == nil, "%v: %s", err, out)
		return
	}
	count := func() int {
		tasks, _ := os.ReadDir("/proc/self/task")
		return len(tasks)
	}
	ReserveThreads(Threads)
	before := count()
	var pipe [2]int
	assert.OK(t, unix.Pipe(pipe[:]))
	var blocked, done sync.WaitGroup
	for range Threads - 4 { // the runtime has some of its own
		blocked.Add(1)
		done.Go(func() {
			blocked.Done()
			_, _ = unix.Read(pipe[0], make([]byte, 1)) // a thread each
		})
	}
	blocked.Wait()
	// One or two are on their way from one use to the next at any moment.
	later := count()
	assert.That(t, before >= Threads && later <= before+2, "%d threads, then %d", before, later)
	unix.Close(pipe[1])
	done.Wait()
}
