package guard

import (
	"fmt"
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

// TestGoesOn: a process goes on if it was sent SIGSTOP, and neither is the signal pending nor is any of its threads
// stopped.
func TestGoesOn(t *testing.T) {
	const rest = " (sh) %s 1 7 7 0 -1 %d 1 2 3 4 5 6 7 8 20 0 2 0 99"
	for _, c := range []struct {
		name, pending string
		threads       []string
		flags         int
		want          bool
	}{
		{"it runs", "0000000000000000", []string{"R", "S"}, 4194304, true},
		{"it waits for a disk", "0000000000000000", []string{"D"}, 4194304, true},
		{"SIGSTOP is pending", "0000000000040000", []string{"D"}, 4194304, false},
		{"SIGKILL is pending", "0000000000000100", []string{"S"}, 4194304, false},
		{"another signal is pending", "0000000000000001", []string{"S"}, 4194304, true},
		{"one thread is stopped, the first will be", "0000000000000000", []string{"R", "T"}, 4194304, false},
		{"it is traced", "0000000000000000", []string{"t"}, 4194304, false},
		{"it is a zombie", "0000000000000000", []string{"Z"}, 4194304, false},
		{"it ends", "0000000000000000", []string{"R"}, 4194304 | 4, false},
	} {
		dir := t.TempDir()
		assert.OK(t, os.WriteFile(dir+"/status", []byte("Name:\tsh\nSigPnd:\t0000000000000000\nShdPnd:\t"+c.pending+"\nSigBlk:\t0\n"), 0o600))
		for i, state := range c.threads {
			task := fmt.Sprintf("%s/task/%d", dir, i)
			assert.OK(t, os.MkdirAll(task, 0o700))
			assert.OK(t, os.WriteFile(task+"/stat", fmt.Appendf(nil, "7"+rest, state, c.flags), 0o600))
		}
		assert.Equal(t, goesOn(dir), c.want, c.name)
	}
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
