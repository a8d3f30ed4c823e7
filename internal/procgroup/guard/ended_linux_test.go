package guard

import (
	"os/exec"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

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
		if got := zombie([]byte(stat)); got != want {
			t.Errorf("%q: %t", stat, got)
		}
	}
}

// A group has ended when its last process has, also before that is reaped.
func TestEnded(t *testing.T) {
	c := exec.Command("sleep", "3600")
	c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	pgid := c.Process.Pid
	if ended(pgid) {
		t.Error("it runs")
	}
	_ = syscall.Kill(pgid, syscall.SIGSTOP)
	if ended(pgid) {
		t.Error("it is stopped")
	}
	_ = syscall.Kill(pgid, syscall.SIGKILL)
	// Wait for its end, and don't reap it.
	if err := unix.Waitid(unix.P_PID, pgid, nil, unix.WEXITED|unix.WNOWAIT, nil); err != nil {
		t.Fatal(err)
	}
	if !ended(pgid) {
		t.Error("it is a zombie")
	}
	_ = c.Wait()
	if !ended(pgid) {
		t.Error("it is gone")
	}
}
