package clock

import (
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/repolock/repolock/internal/test/assert"
	"github.com/repolock/repolock/internal/test/fdinfo"
	"github.com/repolock/repolock/internal/test/timens"
)

// TestElapsedIsSinceBoot: in a time namespace whose time since boot is ahead, Elapsed is ahead by as much, and
// CLOCK_MONOTONIC isn't. So Elapsed counts suspend, which the kernel adds to the former alone.
func TestElapsedIsSinceBoot(t *testing.T) {
	const ahead = 100_000 * time.Second
	if os.Getenv("ELAPSED") != "" {
		var ts unix.Timespec
		assert.OK(t, unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts))
		fmt.Println("ahead by", (System{}).Elapsed()-time.Duration(ts.Nano()))
		return
	}
	out := func(wrapper ...string) (d time.Duration) {
		args := append(wrapper, os.Args[0], "-test.run=^TestElapsedIsSinceBoot$", "-test.v")
		cmd := exec.CommandContext(t.Context(), args[0], args[1:]...)
		cmd.Env = append(os.Environ(), "ELAPSED=1")
		text := assert.Output(t, cmd)
		_, rest, _ := strings.Cut(text, "ahead by ")
		line, _, _ := strings.Cut(rest, "\n")
		d, err := time.ParseDuration(line)
		assert.That(t, err == nil, "%v: %s", err, text)
		return d
	}
	here, there := out(), out(timens.Command(t, ahead)...)
	diff := there - here
	assert.That(t, diff > ahead-time.Minute && diff < ahead+time.Minute, "ahead by %v here, and by %v there", here, there)
}

// TestAlarmsTimers: an alarm has a timer on the clock since boot, which counts suspend, and a timer on the wall clock
// that the kernel cancels when that clock is set. The second stays so when it was cancelled.
func TestAlarmsTimers(t *testing.T) {
	a := newAlarm()
	assert.Need(t, a != nil, "the system has no timers")
	defer a.stop()
	assert.That(t, a.set(time.Hour), "it can't be set")
	timers := fdinfo.Timers(t, os.Getpid())
	want := func(clock, flags int, ok func(left time.Duration) bool) {
		t.Helper()
		assert.That(t, slices.ContainsFunc(timers, func(f fdinfo.Timer) bool { return f.Clock == clock && f.Flags == flags && ok(f.Left) }),
			"none on clock %d with flags %o: %+v", clock, flags, timers)
	}
	want(unix.CLOCK_BOOTTIME, 0, func(left time.Duration) bool { return left > 50*time.Minute && left <= time.Hour })
	want(unix.CLOCK_REALTIME, unix.TFD_TIMER_ABSTIME|unix.TFD_TIMER_CANCEL_ON_SET, func(left time.Duration) bool { return left > 24*time.Hour })
	assert.Equal(t, len(timers), 2)
}

// TestAlarmIsOurs: no program that we start inherits the timers of an alarm.
func TestAlarmIsOurs(t *testing.T) {
	a := newAlarm()
	assert.Need(t, a != nil, "the system has no timers")
	defer a.stop()
	for _, timer := range []*os.File{a.timer, a.steps} {
		raw, err := timer.SyscallConn()
		assert.OK(t, err)
		assert.OK(t, raw.Control(func(fd uintptr) {
			flags, err := unix.FcntlInt(fd, unix.F_GETFD, 0)
			assert.That(t, err == nil && flags&unix.FD_CLOEXEC != 0, "flags %#x, %v", flags, err)
		}))
	}
}

// TestAlarmComesAtOnce: an alarm that is due comes at once. A timer that is set to 0 would be disarmed: timerfd_settime(2).
func TestAlarmComesAtOnce(t *testing.T) {
	a := newAlarm()
	assert.Need(t, a != nil, "the system has no timers")
	defer a.stop()
	for _, d := range []time.Duration{0, -time.Hour} {
		assert.That(t, a.set(d), "it can't be set to %v", d)
		select {
		case <-a.c:
		case <-time.After(assert.Hang):
			t.Errorf("none after %v", d)
		}
	}
}

// TestAlarmIsCancelled: an alarm wakes each time when the kernel cancels its timer of the wall clock, and goes on.
func TestAlarmIsCancelled(t *testing.T) {
	a := &alarm{c: make(chan time.Time, 1)}
	r, w, err := os.Pipe()
	assert.OK(t, err)
	defer w.Close()
	a.readers.Go(func() { a.readFrom(canceled{r}) })
	for range 2 { // a byte stands for ECANCELED
		_, err := w.Write([]byte{0})
		assert.OK(t, err)
		<-a.c
	}
	w.Close()
	a.readers.Wait()
}

// canceled is a timer whose reads fail with ECANCELED.
type canceled struct{ *os.File }

func (c canceled) Read(b []byte) (int, error) {
	if _, err := c.File.Read(b[:1]); err != nil {
		return 0, err
	}
	return 0, &os.PathError{Op: "read", Path: "timerfd", Err: syscall.ECANCELED}
}

// TestWatchHasAnAlarm: a Watch of the system's clock waits for an alarm. A Watch of another clock polls.
func TestWatchHasAnAlarm(t *testing.T) {
	w := NewWatch(System{})
	defer w.Stop()
	assert.That(t, w.alarm != nil && w.After(time.Hour) == (<-chan time.Time)(w.alarm.c), "it polls")
}
